class Lazy(torch.Tensor):
    @staticmethod
    def __new__(cls, work, like):
        made = torch.Tensor._make_subclass(cls, torch.empty_like(like))
        made.work = work
        return made

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        def settle(value):
            return value.work() if isinstance(value, Lazy) else value

        with torch._C.DisableTorchFunctionSubclass():
            if getattr(func, "__name__", "") == "__get__":
                return func(*args, **(kwargs or {}))
            return func(*map(settle, args), **(kwargs or {}))
