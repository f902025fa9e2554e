/* SPDX-License-Identifier: Apache-2.0 */
/* What every artifact has: checks of arguments, scratch memory, threads, the ways in. The tables and
 * functions of one kernel (declared in the text before this one) say the rest. */

static _Thread_local char text[512];

const char *NAME(_error)(void) { return text; }

static int failed(int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return code;
}

/* ---- scratch memory: grows, and belongs to the calling thread */

typedef struct Scratch {
    void *memory;
    size_t bytes;
    struct Scratch *next, **link;
} Scratch;

static pthread_key_t scratch_key;
static atomic_bool has_key;
static Scratch *all_scratch;
static pthread_mutex_t scratch_lock = PTHREAD_MUTEX_INITIALIZER;

static void free_scratch(Scratch *s) {
    *s->link = s->next;
    if (s->next)
        s->next->link = s->link;
    free(s->memory);
    free(s);
}

static void drop_scratch(void *kept) {
    pthread_mutex_lock(&scratch_lock);
    free_scratch(kept);
    pthread_mutex_unlock(&scratch_lock);
}

static Scratch *new_scratch(void) {
    Scratch *s = NULL;
    pthread_mutex_lock(&scratch_lock);
    has_key = has_key || !pthread_key_create(&scratch_key, drop_scratch);
    if (has_key && (s = calloc(1, sizeof *s)) && pthread_setspecific(scratch_key, s)) {
        free(s);
        s = NULL;
    }
    if (s) {
        s->next = all_scratch;
        s->link = &all_scratch;
        if (s->next)
            s->next->link = &s->next;
        all_scratch = s;
    }
    pthread_mutex_unlock(&scratch_lock);
    return s;
}

static char *scratch(size_t bytes) {
    Scratch *s = has_key ? pthread_getspecific(scratch_key) : NULL;
    if (!s && !(s = new_scratch()))
        return NULL;
    if (s->bytes < bytes || !s->memory) {
        free(s->memory);
        s->memory = NULL;
        s->bytes = (bytes + 4095) / 4096 * 4096 + 4096;
        if (posix_memalign(&s->memory, 128, s->bytes)) {
            s->memory = NULL;
            s->bytes = 0;
        }
    }
    return s->memory;
}

/* ---- threads */

typedef void Task(void *data, int64_t task, int64_t n_tasks);

static void parallel_for(void *pool, Task *function, void *data, int64_t n_tasks, int64_t work) {
    (void)pool, (void)work;
#ifdef _OPENMP
#pragma omp parallel for schedule(static, 1) num_threads((int)n_tasks)
#endif
    for (int64_t k = 0; k < n_tasks; k++)
        function(data, k, n_tasks);
}

static _Atomic int most_threads = 1;

void NAME(_set_threads)(int n) { most_threads = n < 1 ? 1 : n; }

/* ---- running */

static const Level *chosen(void) {
    static _Atomic(const Level *) found;
    if (!found) {
        const Level *level = levels;
        while (!level->runs_here())
            level++;
        found = level;
    }
    return found;
}

const char *NAME(_level)(void) {
    const Level *level = chosen();
    return level->kernels ? level->name : "none";
}

static int check_size(int k, int64_t value) {
    const char *name = size_names[k];
    long long n = value, most = bounds[k];
    if (n < 0)
        return failed(ERROR_SIZE, KERNEL ": size `%s` is %lld", name, n);
    if (most >= 0 && n > most)
        return failed(ERROR_SIZE, KERNEL ": size `%s` is %lld, but it is at most %lld here", name, n, most);
    if (fixed[k] >= 0 && n != fixed[k])
        return failed(ERROR_SIZE, KERNEL ": size `%s` is %lld, expected %lld", name, n,
                      (long long)fixed[k]);
    return 0;
}

static int check_sizes(const int64_t *sizes) {
    for (int k = 0; k < N_SIZES; k++) {
        int error = check_size(k, sizes[k]);
        if (error)
            return error;
    }
    int check = first_failing(sizes);
    return check < 0 ? 0 : failed(checks[check].code, KERNEL ": %s", checks[check].text);
}

/* What is bound or packed, see constants.c. */
static void *bound_argument(const Kernel *kernel, int k);

/* Whatever has elements has memory. */
static int check_memory(void *const *buffers, const Argument *known, int n, const int64_t *extents) {
    for (int k = 0; k < n; k++) {
        bool is_empty = false;
        for (int d = 0; d < known[k].rank; d++)
            is_empty |= *extents++ <= 0;
        if (!is_empty && !(buffers && buffers[k]))
            return failed(ERROR_CALL, KERNEL ": the memory of `%s` is null", known[k].name);
    }
    return 0;
}

static int check_given(void *const *buffers, const int64_t *sizes) {
    int64_t extents[N_EXTENTS + 1];
    if (N_SIZES && !sizes)
        return failed(ERROR_CALL, KERNEL ": the values of its sizes are null");
    int error = check_sizes(sizes);
    if (error)
        return error;
    extents_of(sizes, extents);
    return check_memory(buffers, arguments, N_ARGUMENTS, extents);
}

/* Arguments and sizes as the code takes them. binding: its size behind the others. */
static void order(const Kernel *kernel, void *const *buffers, const int64_t *sizes, int64_t binding,
                  void **ordered, int64_t *values) {
    for (int k = 0; k < kernel->n_arguments; k++) {
        int from = kernel->arguments[k];
        ordered[k] = from < N_ARGUMENTS ? buffers[from] : bound_argument(kernel, from - N_ARGUMENTS);
    }
    for (int k = 0; k < kernel->n_sizes; k++)
        values[k] = kernel->sizes[k] < N_SIZES ? sizes[kernel->sizes[k]] : binding;
}

static int fault(const Kernel *kernel, int32_t found) {
    const Message *message = kernel->faults + (found - 1);
    return failed(message->code, KERNEL ": %s", message->text);
}

/* How loops run on threads. */
typedef struct Team {
    void (*parallel_for)(void *, Task *, void *, int64_t, int64_t);
    void *pool;
    int64_t threads;
} Team;

static const int64_t MOST_SCRATCH = INT64_C(1) << 46;

static const Kernel *serving(const Kernel *kernel, const int64_t *sizes) {
    while (!kernel->serves(sizes))
        kernel++;
    return kernel;
}

static int run_kernel(const Kernel *kernel, const Team *team, void *const *buffers,
                      const int64_t *sizes, int64_t binding) {
    int64_t bytes[2], threads = team->threads;
    kernel->bytes(sizes, bytes);
    if (bytes[0] > MOST_SCRATCH || bytes[1] > MOST_SCRATCH)
        return failed(ERROR_MEMORY, KERNEL ": sizes ask for more scratch memory than there is");
    int64_t shared = bytes[0] > 0 ? (bytes[0] + 127) / 128 * 128 : 0;
    int64_t private = bytes[1] > 0 ? (bytes[1] + 127) / 128 * 128 : 0;
    char *memory = shared + private ? scratch(shared + private * threads) : NULL;
    if (shared + private && !memory)
        return failed(ERROR_MEMORY, KERNEL ": no %lld bytes of scratch memory",
                      (long long)(shared + private * threads));
    void *ordered[MOST_ARGUMENTS + 1];
    int64_t values[N_SIZES + 1];
    order(kernel, buffers, sizes, binding, ordered, values);
    int64_t context[N_CONTEXT] = {(int64_t)(void *)team->parallel_for, (int64_t)team->pool, threads,
                                  (int64_t)memory,               (int64_t)(memory + shared), private};
    int32_t found = kernel->code(ordered, values, context);
    return found ? fault(kernel, found) : 0;
}

/* With what is bound of constants, see constants.c; sizes that these or nothing tell. */
static int run_bound(const Level *level, const Team *team, void *const *buffers, const int64_t *sizes);
static int known_sizes(int64_t *sizes);
static void release_bound(void);

static int run_by(const Team *team, void *const *buffers, const int64_t *sizes) {
    const Level *level = chosen();
    if (!level->kernels)
        return failed(ERROR_TARGET, KERNEL ": no code for this processor");
    return run_bound(level, team, buffers, sizes);
}

static int run(void *const *buffers, const int64_t *sizes) {
    Team own = {parallel_for, NULL, most_threads};
    return run_by(&own, buffers, sizes);
}

/* As a kernel is called (tcsym/ir/compiled.py): by the run time of tcsym, on its threads. */
int32_t NAME(_enter)(void *const *buffers, const int64_t *sizes, const Team *context) {
    int error = check_sizes(sizes);
    return error ? error : run_by(context, buffers, sizes);
}

int NAME(_check)(const int64_t *sizes) { return check_sizes(sizes); }

int NAME(_run)(void *const *buffers, const int64_t *sizes) {
    int error = check_given(buffers, sizes);
    return error ? error : run(buffers, sizes);
}

/* ---- tensors of DLPack */

enum { CPU = 1, CUDA = 2 };
@CUDA@
/* first: of the call, where all are. */
static int check_tensor(const DLTensor *t, const DLTensor *first, const Argument *a,
                        const char *first_name) {
    if (t->device.device_type != CPU && !(HAS_CUDA && t->device.device_type == CUDA))
        return failed(ERROR_DEVICE, KERNEL ": `%s` is not in memory of the CPU%s", a->name,
                      HAS_CUDA ? " or of a CUDA device" : "");
    if (t->device.device_type != first->device.device_type ||
        t->device.device_id != first->device.device_id)
        return failed(ERROR_DEVICE, KERNEL ": `%s` is on another device than `%s`", a->name,
                      first_name);
    if (t->ndim != a->rank)
        return failed(ERROR_RANK, KERNEL ": `%s` has %d dimensions, expected %d", a->name,
                      (int)t->ndim, a->rank);
    if (t->dtype.code != a->code || t->dtype.bits != a->bits || t->dtype.lanes != 1)
        return failed(ERROR_TYPE, KERNEL ": `%s` has another type than %s", a->name, a->type);
    int64_t stride = 1;
    for (int d = a->rank - 1; d >= 0; d--) {
        if (t->strides && t->shape[d] > 1 && t->strides[d] != stride)
            return failed(ERROR_LAYOUT, KERNEL ": `%s` is not dense", a->name);
        stride *= t->shape[d];
    }
    return 0;
}

/* Of dense arrays. */
static void count_bytes(const Argument *known, int n, const int64_t *extents, int64_t *bytes) {
    for (int k = 0; k < n; k++) {
        bytes[k] = (known[k].bits + 7) / 8;
        for (int d = 0; d < known[k].rank; d++)
            bytes[k] *= *extents++;
    }
}

/* What is written shares no memory with others. */
static int check_apart(void *const *buffers, const int64_t *extents, void *const *others,
                       const Argument *known, int n, const int64_t *extents_of_others) {
    int64_t bytes[N_ARGUMENTS + 1], more[MOST_ARGUMENTS + 1];
    count_bytes(arguments, N_ARGUMENTS, extents, bytes);
    count_bytes(known, n, extents_of_others, more);
    for (int k = 0; k < N_ARGUMENTS; k++)
        for (int j = 0; arguments[k].written && j < n; j++)
            if (arguments + k != known + j && (char *)buffers[k] < (char *)others[j] + more[j] &&
                (char *)others[j] < (char *)buffers[k] + bytes[k])
                return failed(ERROR_IMMUTABLE, KERNEL ": `%s` overlaps `%s`", arguments[k].name,
                              known[j].name);
    return 0;
}

/* Their memory, and the sizes that they tell and nothing did before. extent_sizes: of each axis
 * whose extent is a size, its place. */
static int read_tensors(DLTensor *const *tensors, const Argument *known, int n,
                        const int *extent_sizes, int64_t *sizes, void **buffers) {
    for (int k = 0; k < n; k++) {
        int error = check_tensor(tensors[k], tensors[0], known + k, known[0].name);
        if (error)
            return error;
        buffers[k] = tensors[k]->data ? (char *)tensors[k]->data + tensors[k]->byte_offset : NULL;
        for (int d = 0; d < known[k].rank; d++) {
            int size = *extent_sizes++;
            if (size >= 0 && sizes[size] < 0)
                sizes[size] = tensors[k]->shape[d];
        }
    }
    return 0;
}

static int check_extents(DLTensor *const *tensors, const Argument *known, int n,
                         const int64_t *extents) {
    for (int k = 0; k < n; k++)
        for (int d = 0; d < known[k].rank; d++, extents++)
            if (tensors[k]->shape[d] != *extents)
                return failed(ERROR_SIZE, KERNEL ": `%s` has size %lld on axis %d, expected %lld",
                              known[k].name, (long long)tensors[k]->shape[d], d, (long long)*extents);
    return 0;
}

int NAME(_tensors)(DLTensor *const *tensors, const int64_t *given) {
    int64_t sizes[N_SIZES + 1], extents[N_EXTENTS + 1];
    void *buffers[N_ARGUMENTS + 1];
    int error = known_sizes(sizes);
    for (int k = 0; k < N_GIVEN; k++)
        sizes[given_sizes[k]] = given[k];
    if (error ||
        (error = read_tensors(tensors, arguments, N_ARGUMENTS, extent_sizes, sizes, buffers)) ||
        (error = check_sizes(sizes)))
        return error;
    extents_of(sizes, extents);
    if ((error = check_extents(tensors, arguments, N_ARGUMENTS, extents)) ||
        (error = check_memory(buffers, arguments, N_ARGUMENTS, extents)) ||
        (error = check_apart(buffers, extents, buffers, arguments, N_ARGUMENTS, extents)))
        return error;
    if (HAS_CUDA && tensors[0]->device.device_type == CUDA) {
        int device = tensors[0]->device.device_id;
        return run_on_device(buffers, sizes, device, stream_of(device));
    }
    return run(buffers, sizes);
}

void NAME(_extents)(const int64_t *sizes, int64_t *extents) { extents_of(sizes, extents); }

/* Threads of OpenMP stay when their work is done, and so does its library. */
static void keep_threads(void) {
#ifdef _OPENMP
    int omp_get_max_threads(void);
    Dl_info of;
    if (dladdr((void *)omp_get_max_threads, &of))
        dlopen(of.dli_fname, RTLD_NOW | RTLD_NODELETE);
#endif
}

void NAME(_release)(void) {
    release_bound();
    keep_threads();
    pthread_mutex_lock(&scratch_lock);
    while (all_scratch)
        free_scratch(all_scratch);
    if (has_key)
        pthread_key_delete(scratch_key);
    has_key = false;
    pthread_mutex_unlock(&scratch_lock);
}

/* ---- TVM's FFI: its stable C ABI, as far as a function of tensors and integers needs it
 * (https://tvm.apache.org/ffi). */

typedef struct {
    int32_t type, padding;
    union {
        int64_t integer;
        void *pointer;
    } value;
} FfiAny;

enum { FFI_INT = 1, FFI_DLTENSOR = 7, FFI_TENSOR = 70, FFI_OBJECT_BYTES = 24 };

/* Looked up when it is wanted: others may have loaded this library before that one. */
static int raised(int code) {
    void (*raise)(const char *, const char *) =
        (void (*)(const char *, const char *))dlsym(RTLD_DEFAULT, "TVMFFIErrorSetRaisedFromCStr");
    if (raise)
        raise(code == ERROR_TYPE || code == ERROR_CALL ? "TypeError"
              : code == ERROR_BOUNDS                   ? "IndexError"
              : code == ERROR_MEMORY                   ? "MemoryError"
                                                       : "ValueError",
              text);
    return -1;
}

static int ffi_tensors(const FfiAny *args, int n, const Argument *known, DLTensor **tensors) {
    for (int k = 0; k < n; k++) {
        if (args[k].type == FFI_DLTENSOR)
            tensors[k] = args[k].value.pointer;
        else if (args[k].type == FFI_TENSOR)
            tensors[k] = (DLTensor *)((char *)args[k].value.pointer + FFI_OBJECT_BYTES);
        else
            return failed(ERROR_TYPE, KERNEL ": `%s` is no tensor", known[k].name);
    }
    return 0;
}

static int ffi_done(int error, FfiAny *result) {
    result->type = result->padding = 0;
    result->value.integer = 0;
    return error ? raised(error) : 0;
}

int FFI_NAME()(void *handle, const FfiAny *args, int32_t n, FfiAny *result) {
    (void)handle;
    DLTensor *tensors[N_ARGUMENTS + 1];
    int64_t given[N_GIVEN + 1];
    if (n != N_ARGUMENTS + N_GIVEN)
        return raised(failed(ERROR_CALL, KERNEL ": takes %d arguments, %d are given",
                             N_ARGUMENTS + N_GIVEN, (int)n));
    int error = ffi_tensors(args, N_ARGUMENTS, arguments, tensors);
    for (int k = 0; k < N_GIVEN && !error; k++) {
        if (args[N_ARGUMENTS + k].type != FFI_INT)
            error = failed(ERROR_TYPE, KERNEL ": `%s` is no integer", size_names[given_sizes[k]]);
        given[k] = args[N_ARGUMENTS + k].value.integer;
    }
    return ffi_done(error ? error : NAME(_tensors)(tensors, given), result);
}

@CONSTANTS@