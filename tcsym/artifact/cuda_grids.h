/* SPDX-License-Identifier: Apache-2.0 */
/* NVIDIA's driver, found when it is first needed, and the grids that host halves of kernels launch by
 * it. One text for the run time (tcsym/native/device.c) and for artifacts (cuda.c), which also say
 * what DRIVER_ERROR is. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of cuda.h, the driver's interface: CU_LAUNCH_PARAM_*, CU_STREAM_CAPTURE_MODE_*, CUDA_ERROR_*. */
enum { END = 0, BUFFER = 1, BUFFER_SIZE = 2 };
enum { RELAXED = 2 };
enum { INVALID_VALUE = 1, TOO_LARGE = 720, MOST_BLOCKS = 0x7fffffff };

#define DECLARE(name, parameters) static int(*name) parameters;
#define DRIVER_OF_ALL(X)                                                                           \
    X(cuCtxPushCurrent_v2, (void *context))                                                        \
    X(cuCtxPopCurrent_v2, (void **context))                                                        \
    X(cuThreadExchangeStreamCaptureMode, (int *mode))                                              \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor,                                                 \
      (int *blocks, void *function, int threads, size_t shared_bytes))                             \
    X(cuLaunchCooperativeKernel,                                                                   \
      (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,        \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream,                    \
       void **parameters))                                                                         \
    X(cuLaunchKernel, (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,          \
                       unsigned block_x, unsigned block_y, unsigned block_z,                       \
                       unsigned shared_bytes, void *stream, void **parameters, void **extra))

DRIVER_OF_ALL(DECLARE)
DRIVER(DECLARE)

static const char *const DRIVER_LIBRARY = "libcuda.so.1";

/* What is not there: the library, or a function of it; null if all is. */
static const char *missing_of_driver(void) {
    static bool is_found;
    void *library = is_found ? NULL : dlopen(DRIVER_LIBRARY, RTLD_NOW | RTLD_GLOBAL);
    if (!is_found && !library)
        return DRIVER_LIBRARY;
#define FIND(name, parameters)                                                                     \
    if (!is_found && !(name = (int(*) parameters)dlsym(library, #name)))                           \
        return #name;
    DRIVER_OF_ALL(FIND)
    DRIVER(FIND)
    is_found = true;
    return NULL;
}

/* One of the functions of a kernel on a device. */
typedef struct {
    void *handle;
    _Atomic int64_t resident; /* blocks that run at once; 0: not known yet, all find the same */
} Function;

/* What a host half launches by, as the first two words of its context say. */
typedef struct {
    Function *functions;
    void *stream;
    int64_t n_functions, multiprocessors, launches;
} Queue;

/* As many blocks as run at once, `blocks` at most, which wait for each other. The driver takes the
 * parameters of such a grid one by one. 0, or its code. */
static int launch_together(const Queue *queue, Function *function, int64_t *words, int64_t n_words,
                           int64_t blocks, int64_t threads, int64_t shared_bytes) {
    void *called = function->handle, *parameters[n_words];
    int64_t resident = atomic_load_explicit(&function->resident, memory_order_relaxed);
    if (!resident) {
        int each, code = cuOccupancyMaxActiveBlocksPerMultiprocessor(&each, called, (int)threads,
                                                                     (size_t)shared_bytes);
        if (code || !each)
            return code ? code : TOO_LARGE;
        resident = each * queue->multiprocessors;
        atomic_store_explicit(&function->resident, resident, memory_order_relaxed);
    }
    for (int64_t k = 0; k < n_words; k++)
        parameters[k] = words + k;
    return cuLaunchCooperativeKernel(called, (unsigned)(blocks < resident ? blocks : resident), 1, 1,
                                     (unsigned)threads, 1, 1, (unsigned)shared_bytes, queue->stream,
                                     parameters);
}

/* Enqueues a function on a grid. 0, or DRIVER_ERROR less the driver's code. */
static int32_t launch(Queue *queue, int64_t function, void *words, int64_t n_words, int64_t blocks,
                      int64_t threads, int64_t shared_bytes, int64_t together) {
    Function *called = queue->functions + function;
    size_t bytes = (size_t)n_words * sizeof(int64_t);
    void *extra[] = {(void *)BUFFER, words, (void *)BUFFER_SIZE, &bytes, (void *)END};
    if (blocks <= 0)
        return 0; /* which the driver calls an error */
    if (blocks > MOST_BLOCKS || function < 0 || function >= queue->n_functions)
        return DRIVER_ERROR - INVALID_VALUE;
    queue->launches++;
    int code = together ? launch_together(queue, called, words, n_words, blocks, threads, shared_bytes)
                        : cuLaunchKernel(called->handle, (unsigned)blocks, 1, 1, (unsigned)threads, 1,
                                         1, (unsigned)shared_bytes, queue->stream, NULL, extra);
    return code ? DRIVER_ERROR - code : 0;
}
