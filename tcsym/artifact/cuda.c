/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels on NVIDIA's devices: the driver is found when a call first needs it, code lies in files
 * beside this library. A kernel is loaded on each device once; calls are enqueued and return. What a
 * running kernel finds it notes in a word of the host, which the next call, or waiting, reports. */

enum { MOST_DEVICES = 16, MOST_STREAMS = 16, OF_EARLIER = 1, DRIVER_ERROR = -1000 };
enum { CU_MULTIPROCESSORS = 16, CU_MAJOR = 75, CU_MINOR = 76, CU_MOST_SHARED = 97, CU_FUNCTION_SHARED = 8, CU_MAPPED = 3, CU_NO_FILE = 301 };

#define DRIVER(X)                                                                                  \
    X(cuInit, (unsigned flags))                                                                    \
    X(cuDeviceGet, (int *device, int number))                                                      \
    X(cuDeviceGetAttribute, (int *value, int attribute, int device))                               \
    X(cuDevicePrimaryCtxRetain, (void **context, int device))                                      \
    X(cuModuleLoad, (void **module, const char *path))                                             \
    X(cuModuleGetFunction, (void **function, void *module, const char *name))                      \
    X(cuFuncSetAttribute, (void *function, int attribute, int value))                              \
    X(cuMemAlloc_v2, (uint64_t *memory, size_t bytes))                                             \
    X(cuMemHostAlloc, (void **memory, size_t bytes, unsigned flags))                               \
    X(cuStreamSynchronize, (void *stream))                                                         \
    X(cuGetErrorString, (int code, const char **why))
@GRIDS@
typedef struct {
    Function *functions; /* null: not loaded yet */
    volatile uint32_t *word; /* the device has one space of addresses with the host */
} Loaded;
typedef struct {
    void *context;
    const DeviceLevel *level;
    Loaded loaded[MOST_DEVICE_KERNELS];
    struct {
        void *stream;
        uint64_t memory;
        int64_t bytes;
    } scratch[MOST_STREAMS];
    int most_shared, multiprocessors, n_streams;
} Place;
static Place places[MOST_DEVICES];
static pthread_mutex_t placing = PTHREAD_MUTEX_INITIALIZER;

static int driver_failed(int code, const char *what) {
    const char *why = NULL;
    if (cuGetErrorString)
        cuGetErrorString(code, &why);
    return failed(code == 2 ? ERROR_MEMORY : ERROR_TARGET, KERNEL ": %s: the CUDA driver says: %s", what,
                  why ? why : "unknown error");
}

static int find_driver(void) {
    static bool has_begun;
    const char *missing = missing_of_driver();
    if (missing)
        return failed(ERROR_TARGET, KERNEL ": there is no CUDA driver here (%s)", missing);
    int code = has_begun ? 0 : cuInit(0);
    has_begun = !code;
    return code ? driver_failed(code, "it cannot begin") : 0;
}

/* The device and its level, the first one whose code it runs. */
static int find_place(int number, Place **found) {
    if (number < 0 || number >= MOST_DEVICES)
        return failed(ERROR_DEVICE, KERNEL ": there is no device %d", number);
    Place *place = *found = places + number;
    if (place->context)
        return 0;
    int device, major, minor, code = cuDeviceGet(&device, number);
    if (code)
        return driver_failed(code, "there is no such device");
    cuDeviceGetAttribute(&major, CU_MAJOR, device);
    cuDeviceGetAttribute(&minor, CU_MINOR, device);
    cuDeviceGetAttribute(&place->most_shared, CU_MOST_SHARED, device);
    cuDeviceGetAttribute(&place->multiprocessors, CU_MULTIPROCESSORS, device);
    int capability = 10 * major + minor;
    const DeviceLevel *level = device_levels;
    while (level->kernels && (level->is_exact ? capability != level->capability
                                              : capability < level->capability))
        level++;
    if (!level->kernels)
        return failed(ERROR_TARGET, KERNEL ": no code for a device of compute capability %d.%d", major,
                      minor);
    place->level = level;
    if ((code = cuDevicePrimaryCtxRetain(&place->context, device)))
        return driver_failed(code, "the device cannot be used");
    return 0;
}

/* The first file beside this library that the driver takes: machine code of other devices it does not. */
static int load_module(const char *const *files, void **module) {
    Dl_info self = {0};
    dladdr((void *)load_module, &self);
    const char *library = self.dli_fname ? self.dli_fname : "", *slash = strrchr(library, '/');
    char path[4096];
    int code = 0, n = slash ? (int)(slash + 1 - library) : 0;
    for (int k = 0; files[k]; k++) {
        snprintf(path, sizeof path, "%.*s%s", n, library, files[k]);
        if (!(code = cuModuleLoad(module, path)))
            return 0;
        if (code == CU_NO_FILE)
            return failed(ERROR_TARGET, KERNEL ": `%s` is not beside the library", files[k]);
    }
    return driver_failed(code, "the device's code cannot be loaded");
}

static int load_kernel(Place *place, const DeviceKernel *kernel, Loaded *loaded) {
    void *module, *word;
    int code = load_module(kernel->files, &module);
    if (code)
        return code;
    Function *functions = calloc((size_t)kernel->n_functions + 1, sizeof *functions);
    if (!functions)
        return failed(ERROR_MEMORY, KERNEL ": no memory");
    for (int k = 0; k < kernel->n_functions && !code; k++) {
        code = cuModuleGetFunction(&functions[k].handle, module, kernel->functions[k]);
        if (!code)
            code = cuFuncSetAttribute(functions[k].handle, CU_FUNCTION_SHARED, place->most_shared);
    }
    if (!code)
        code = cuMemHostAlloc(&word, sizeof *loaded->word, CU_MAPPED);
    if (code) {
        free(functions);
        return driver_failed(code, "the kernel cannot be loaded");
    }
    loaded->word = word;
    *loaded->word = 0;
    loaded->functions = functions;
    return 0;
}

/* What kernels on the device noted, once. */
static int note_faults(Place *place, int of_earlier) {
    const DeviceKernel *kernel = place->level->kernels;
    for (int k = 0; kernel[k].kernel.code; k++) {
        Loaded *loaded = place->loaded + k;
        uint32_t fault = loaded->functions ? *loaded->word : 0;
        if (fault) {
            *loaded->word = 0;
            const Message *found = kernel[k].kernel.faults + (fault - 1);
            return failed(found->code, KERNEL ": %s%s", found->text,
                          of_earlier ? " (in an earlier call)" : "");
        }
    }
    return 0;
}

/* Of a stream, on which calls follow each other. What it had before stays: it may be in use. */
static int device_scratch(Place *place, void *stream, int64_t bytes, uint64_t *memory) {
    int k = 0;
    while (k < place->n_streams && place->scratch[k].stream != stream)
        k++;
    if (k == MOST_STREAMS)
        return failed(ERROR_DEVICE, KERNEL ": calls came on more than %d streams", MOST_STREAMS);
    if (k == place->n_streams)
        place->scratch[place->n_streams++].stream = stream;
    if (place->scratch[k].bytes < bytes) {
        int code = cuMemAlloc_v2(&place->scratch[k].memory, (size_t)(2 * bytes));
        if (code)
            return driver_failed(code, "no scratch memory");
        place->scratch[k].bytes = 2 * bytes;
    }
    *memory = place->scratch[k].memory;
    return 0;
}

static int enqueue(Place *place, void *const *buffers, const int64_t *sizes, void *stream) {
    const DeviceKernel *kernel = place->level->kernels;
    int k = 0, error = note_faults(place, OF_EARLIER);
    while (!kernel[k].kernel.serves(sizes))
        k++;
    if (!error && !place->loaded[k].functions)
        error = load_kernel(place, kernel + k, place->loaded + k);
    if (error)
        return error;
    int64_t bytes[2];
    uint64_t memory = 0;
    kernel[k].kernel.bytes(sizes, bytes);
    if (bytes[0] > 0 && (error = device_scratch(place, stream, bytes[0], &memory)))
        return error;
    void *ordered[N_ARGUMENTS + 1];
    int64_t values[N_SIZES + 1];
    order(&kernel[k].kernel, buffers, sizes, 0, ordered, values);
    Queue queue = {place->loaded[k].functions, stream, kernel[k].n_functions, place->multiprocessors, 0};
    int64_t context[N_CONTEXT] = {(int64_t)(void *)launch,        (int64_t)(void *)&queue, 1,
                                  (int64_t)memory,                0,                       0,
                                  (int64_t)(void *)place->loaded[k].word};
    int32_t found = kernel[k].kernel.code(ordered, values, context);
    if (found < 0)
        return driver_failed(DRIVER_ERROR - found, "a kernel cannot be launched");
    return found ? fault(&kernel[k].kernel, found) : 0;
}

static int wait_for(Place *place, void *stream) {
    int code = cuStreamSynchronize(stream);
    return code ? driver_failed(code, "waiting for the device") : note_faults(place, 0);
}

/* Waits, if there are no buffers. */
static int run_on_device(void *const *buffers, const int64_t *sizes, int device, void *stream) {
    Place *place;
    void *popped;
    int mode = RELAXED; /* a call may load and allocate though a graph is captured */
    pthread_mutex_lock(&placing);
    int error = find_driver();
    if (!error)
        error = find_place(device, &place);
    if (!error) {
        int code = cuCtxPushCurrent_v2(place->context);
        cuThreadExchangeStreamCaptureMode(&mode);
        error = code      ? driver_failed(code, "the device cannot be used")
                : buffers ? enqueue(place, buffers, sizes, stream)
                          : wait_for(place, stream);
        cuThreadExchangeStreamCaptureMode(&mode);
        if (!code)
            cuCtxPopCurrent_v2(&popped);
    }
    pthread_mutex_unlock(&placing);
    return error;
}

int NAME(_cuda_run)(void *const *buffers, const int64_t *sizes, int device, void *stream) {
    int error = check_given(buffers, sizes);
    return error ? error : run_on_device(buffers, sizes, device, stream);
}

int NAME(_cuda_wait)(int device, void *stream) { return run_on_device(NULL, NULL, device, stream); }

/* The stream that TVM's FFI says, if that is loaded; else the default one. */
static void *stream_of(int device) {
    void *(*stream)(int32_t, int32_t) =
        (void *(*)(int32_t, int32_t))dlsym(RTLD_DEFAULT, "TVMFFIEnvGetStream");
    return stream ? stream(2, device) : NULL;
}
