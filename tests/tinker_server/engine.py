"""Mend what skyrl 0.4.0's JAX engine does otherwise than the Tinker service.

- **Losses are sums.** skyrl averages each datum over its positions, prompt included, and then over
  datums; the service sums over tokens and datums. Advantages are multiplied by the positions, and
  gradients are not divided by the number of datums. ``cross_entropy`` stays an average over a
  datum's weights: it has no advantages.
- **Snapshots have slots of their own.** skyrl loads a snapshot into the adapter that is trained:
  sampling one after an update puts the weights before the update back, without an error.
- **Kept weights outlive their learner.** skyrl samples with them only while the learner is loaded,
  which ends 300 s after its session or with the server; an evaluation would fail later on.
- **Few shapes.** Each number of datums and each length would be compiled anew (4 to 20 s): a batch
  is filled up with datums whose advantages are zero, which add nothing, and nothing is padded to
  fewer than `SHORTEST` positions.
- ``loss:sum`` is told, and the first entry of prompt log-probabilities is empty.

`mend` changes skyrl's classes in this process; it holds no code of theirs.
"""

from __future__ import annotations

import json
import tarfile
from typing import Any

__all__ = ["SHORTEST", "fill_up", "mend"]

SHORTEST = 128
"""Positions that a prompt, or a datum, is padded to at least. The demonstration's would have four
lengths otherwise."""


def mend() -> None:
    """Change skyrl's engine and JAX backend, before either is made."""
    from skyrl.backends import jax as backend
    from skyrl.tinker import engine, types
    from skyrl.tx.layers.lora import init_lora_adapter
    from skyrl.tx.utils.models import load_lora_checkpoint

    jax_backend = backend.JaxBackendImpl
    gradients = backend.AccumulatedGradients
    mean_of = gradients.get_mean
    length_of = backend.round_up_seq_len
    plain_valid = engine.TinkerEngine._filter_valid_requests
    plain = {
        name: getattr(jax_backend, name)
        for name in ("_model_pass", "sample", "create_model", "load_sampler_weights")
    }

    def get_sum(self: Any, adapter_index: Any) -> Any:
        import jax

        count = backend.jnp.maximum(self.counts[adapter_index], 1)
        mean = mean_of(self, adapter_index)
        return jax.tree.map(lambda leaf: leaf * count.astype(leaf.dtype), mean)

    def model_pass(self: Any, batch: Any, function: Any) -> Any:
        if not batch.all_model_inputs:
            return plain["_model_pass"](self, batch, function)
        factors = [max(sum(weights), 1.0) for weights in batch.all_token_weights]
        filled = fill_up(batch, factors, self.config.train_micro_batch_size)
        found = plain["_model_pass"](self, filled, function)
        for request_id, _, start, end in batch.request_batch_slices:
            outputs = found[request_id].loss_fn_outputs
            total = 0.0
            for factor, output in zip(factors[start:end], outputs, strict=True):
                losses = output["elementwise_loss"]
                if batch.all_loss_fns[start] != "cross_entropy":  # it has no advantages
                    losses["data"] = [value / factor for value in losses["data"]]
                total += sum(losses["data"])
            found[request_id].metrics["loss:sum"] = total
        return found

    def sample(self: Any, prepared_batch: Any) -> Any:
        found = plain["sample"](self, prepared_batch)
        for output in found.values():
            told = getattr(output, "prompt_logprobs", None)
            if told is not None:
                output.prompt_logprobs = [None, *told]
        return found

    def snapshots(self: Any) -> dict[tuple[str, str], int]:
        return self.__dict__.setdefault("_snapshots", {})

    def free_slot(self: Any, kept: set[tuple[str, str]]) -> int:
        held = snapshots(self)
        used = {model.adapter_index for model in self.models.values()} | set(held.values())
        for index in reversed(range(1, self.config.max_lora_adapters)):
            if index not in used:
                return index
        oldest = next((key for key in held if key not in kept), None)
        if oldest is None:
            raise ValueError("all adapter slots are taken by models and by snapshots in use")
        return held.pop(oldest)

    def create_model(self: Any, model_id: str, lora_config: Any, **more: Any) -> Any:
        index = free_slot(self, set())
        # skyrl takes the lowest index that no model has: whichever snapshot lies there makes room.
        taken = {model.adapter_index for model in self.models.values()}
        lowest = min(set(range(1, self.config.max_lora_adapters)) - taken, default=index)
        held = snapshots(self)
        for key in [key for key, slot in held.items() if slot == lowest]:
            del held[key]
        return plain["create_model"](self, model_id, lora_config, **more)

    def load_sampler_weights(self: Any, batch: Any) -> list[int]:
        held = snapshots(self)
        keys = list(zip(batch.all_model_ids, batch.all_checkpoint_ids, strict=True))
        wanted = {key for key in keys if key[0]}
        paths = dict(zip(keys, batch.all_checkpoint_paths, strict=True))
        for key in wanted & held.keys():
            held[key] = held.pop(key)  # the last used comes last
        for key in sorted(wanted - held.keys()):
            index = free_slot(self, wanted)
            loaded = self.models.get(key[0])
            config = loaded.lora_config if loaded else kept_config(paths[key])
            with backend.jax.set_mesh(self.mesh):
                init_lora_adapter(self.model, index, config)
            load_lora_checkpoint(self.model, config, index, backend.AnyPath(paths[key]))
            held[key] = index
        return [held[key] if key[0] else 0 for key in keys]

    def kept_config(path: str) -> Any:
        with backend.AnyPath(path).open("rb") as packed, tarfile.open(fileobj=packed) as files:
            (name,) = (name for name in files.getnames() if name.endswith("adapter_config.json"))
            found = json.load(files.extractfile(name))  # type: ignore[arg-type]
        return types.LoraConfig(rank=found["r"], alpha=found["lora_alpha"], seed=0)

    def valid_requests(self: Any, requests: Any) -> Any:
        def samples_kept_weights(model_id: str, asked: Any) -> bool:
            if not (model_id and isinstance(asked, types.SampleInput) and asked.checkpoint_id):
                return False
            kept = self.config.checkpoints_base / model_id / "sampler_weights"
            return bool((kept / f"{asked.checkpoint_id}.tar.gz").exists())

        known = {name for name, request in requests.items() if samples_kept_weights(*request)}
        others = {name: request for name, request in requests.items() if name not in known}
        errors, valid = plain_valid(self, others)
        known |= valid.keys()
        return errors, {name: requests[name] for name in requests if name in known}

    def padded_length(positions: int) -> int:
        return max(SHORTEST, length_of(positions))

    engine.TinkerEngine._filter_valid_requests = valid_requests
    gradients.get_mean = get_sum
    backend.round_up_seq_len = padded_length
    jax_backend._model_pass = model_pass
    jax_backend.sample = sample
    jax_backend.create_model = create_model  # called by name: parameters are skyrl's
    jax_backend.load_sampler_weights = load_sampler_weights


def fill_up(batch: Any, factors: list[float], micro_batch: int) -> Any:
    """Return a batch of whole micro-batches whose losses skyrl's averages turn into sums.

    Args:
        batch: skyrl's ``PreparedModelPassBatch``.
        factors: What each datum's loss is divided by: its positions.
        micro_batch: Datums of one micro-batch.
    """
    missing = -len(factors) % micro_batch if micro_batch > 0 else 0

    def filled(values: list[Any]) -> list[Any]:
        return [*values, *values[:1] * missing] if values else values

    scaled = [
        [value * factor for value in advantages]
        for advantages, factor in zip(batch.all_advantages, factors, strict=True)
    ]
    nothing = [0.0] * len(batch.all_token_weights[0])
    update = {
        name: filled(getattr(batch, name))
        for name in type(batch).model_fields
        if name.startswith("all_")
    }
    update["all_advantages"] = [*scaled, *[nothing] * missing]
    update["all_token_weights"] = [*batch.all_token_weights, *[nothing] * missing]
    return batch.model_copy(update=update)
