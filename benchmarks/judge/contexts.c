/* Makes and releases one CUDA context, while all GPUs of the machine can be opened or one only.
 *
 * Usage: contexts ONLY. ONLY is the number of the one /dev/nvidiaN that can be opened, or -1 if all
 * can. Prints the driver's first error code (0: none), the number of GPUs that the driver sees, and
 * the milliseconds of cuInit, of making the context, and of releasing it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int only = -1;

static int is_closed(const char *path) {
  int number, used = 0;
  if (only < 0 || sscanf(path, "/dev/nvidia%d%n", &number, &used) != 1 || path[used]) return 0;
  return number != only;
}

/* The program exports these functions, so the driver's library calls them in place of libc's. */
#define OPEN(folder)                                                     \
  mode_t mode = 0;                                                       \
  if (flags & (O_CREAT | O_TMPFILE)) {                                   \
    va_list more;                                                        \
    va_start(more, flags);                                               \
    mode = va_arg(more, mode_t);                                         \
    va_end(more);                                                        \
  }                                                                      \
  if (is_closed(path)) {                                                 \
    errno = EACCES; /* as Landlock answers */                            \
    return -1;                                                           \
  }                                                                      \
  return syscall(SYS_openat, folder, path, flags, mode);

int open(const char *path, int flags, ...) { OPEN(AT_FDCWD) }
int open64(const char *path, int flags, ...) { OPEN(AT_FDCWD) }
int openat(int folder, const char *path, int flags, ...) { OPEN(folder) }
int openat64(int folder, const char *path, int flags, ...) { OPEN(folder) }

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

int main(int count, char **given) {
  only = count > 1 ? atoi(given[1]) : -1;
  void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
  if (!driver) return 1;
  int (*init)(unsigned) = dlsym(driver, "cuInit");
  int (*seen)(int *) = dlsym(driver, "cuDeviceGetCount");
  int (*retain)(void **, int) = dlsym(driver, "cuDevicePrimaryCtxRetain");
  int (*release)(int) = dlsym(driver, "cuDevicePrimaryCtxRelease_v2");
  int gpus = 0;
  double at[4] = {now_ms()};
  int error = init(0);
  if (!error) error = seen(&gpus);
  at[1] = now_ms();
  if (!error) error = retain(&context, 0);
  at[2] = now_ms();
  if (!error) error = release(0);
  at[3] = now_ms();
  printf("%d %d %.1f %.1f %.1f\n", error, gpus, at[1] - at[0], at[2] - at[1], at[3] - at[2]);
  return error != 0;
}
