/* SPDX-License-Identifier: Apache-2.0 */
/* ---- constants: inputs that the caller gives once. What follows from them alone is made when they
 * are bound; what the code of some sizes makes of them (packed panels), before its first call. */

enum { N_BOUND = N_CONSTANTS + N_HELD };

static pthread_rwlock_t bound_lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static int is_bound;
static void *bound[N_BOUND + 1];
static int64_t told[N_SIZES + 1]; /* sizes that constants tell */

static void *bound_argument(const Kernel *kernel, int k) {
    return k < N_BOUND ? bound[k] : kernel->packed[k - N_BOUND];
}

static int make_room(int64_t bytes, void **memory) {
    if (!posix_memalign(memory, 128, bytes > 0 ? bytes : 1))
        return 0;
    *memory = NULL;
    return failed(ERROR_MEMORY, KERNEL ": no %lld bytes for what follows from constants",
                  (long long)bytes);
}

static void drop(void **memory, int n) {
    for (int k = 0; k < n; k++) {
        free(memory[k]);
        memory[k] = NULL;
    }
}

static void unbind(const Level *level) {
    is_bound = 0;
    drop(bound + N_CONSTANTS, N_HELD);
    for (int k = 0; k < level->n_kernels; k++)
        drop(level->kernels[k].packed, level->kernels[k].n_packed);
}

/* The file beside this library, as numpy writes it. */
static int map_file(const File *file, void **memory) {
    Dl_info here;
    struct stat status = {0};
    char path[4096];
    const char *end = dladdr(&is_bound, &here) ? strrchr(here.dli_fname, '/') : NULL;
    snprintf(path, sizeof path, "%.*s%s", end ? (int)(end + 1 - here.dli_fname) : 0,
             end ? here.dli_fname : "", file->name);
    int opened = open(path, O_RDONLY | O_CLOEXEC);
    char *found = opened < 0 || fstat(opened, &status)
                      ? MAP_FAILED
                      : mmap(NULL, status.st_size, PROT_READ, MAP_PRIVATE, opened, 0);
    if (opened >= 0)
        close(opened);
    if (found == MAP_FAILED)
        return failed(ERROR_CALL, KERNEL ": `%s` cannot be read", path);
    size_t size = status.st_size, n = strlen(file->header);
    if (size != file->start + file->bytes || memcmp(found, "\x93NUMPY\x01", 7) ||
        memcmp(found + 10, file->header, n)) {
        munmap(found, size);
        return failed(ERROR_SIZE, KERNEL ": `%s` is not %s", path, file->header);
    }
    *memory = found + file->start;
    return 0;
}

/* Mapped once; they stay until all is released. */
static void *mapped[N_CONSTANTS + 1];

static int map_files(void *const **constants) {
    if (!constant_files[0].name)
        return failed(ERROR_CALL, KERNEL ": constants are not bound");
    for (int k = 0; k < N_CONSTANTS; k++) {
        int error = mapped[k] ? 0 : map_file(constant_files + k, mapped + k);
        if (error)
            return error;
    }
    *constants = mapped;
    return 0;
}

static void release_bound(void) {
    pthread_rwlock_wrlock(&bound_lock);
    unbind(chosen());
    for (int k = 0; k < N_CONSTANTS; k++)
        if (mapped[k]) {
            const File *file = constant_files + k;
            munmap((char *)mapped[k] - file->start, file->start + file->bytes);
            mapped[k] = NULL;
        }
    pthread_rwlock_unlock(&bound_lock);
}

static int bind_now(void *const *constants, const int64_t *sizes) {
    const Level *level = chosen();
    if (!level->kernels)
        return failed(ERROR_TARGET, KERNEL ": no code for this processor");
    int64_t bytes[N_HELD + 1];
    int error = constants ? 0 : map_files(&constants);
    if (error)
        return error;
    unbind(level);
    for (int k = 0; k < N_SIZES; k++)
        told[k] = is_told[k] ? sizes[k] : -1;
    memcpy(bound, constants, N_CONSTANTS * sizeof *bound);
    held_bytes(told, bytes);
    for (int k = 0; k < N_HELD && !error; k++)
        error = make_room(bytes[k], bound + N_CONSTANTS + k);
    if (!error && level->binding) {
        Team own = {parallel_for, NULL, most_threads};
        error = run_kernel(serving(level->binding, told), &own, NULL, told, 0);
    }
    if (error)
        unbind(level);
    is_bound = !error;
    return error;
}

/* Locks for a call. What nobody bound is taken from the files. */
static int lock_bound(void) {
    for (;;) {
        pthread_rwlock_rdlock(&bound_lock);
        if (is_bound)
            return 0;
        pthread_rwlock_unlock(&bound_lock);
        pthread_rwlock_wrlock(&bound_lock);
        int error = is_bound ? 0 : bind_now(NULL, fixed);
        pthread_rwlock_unlock(&bound_lock);
        if (error)
            return error;
    }
}

static int known_sizes(int64_t *sizes) {
    int error = lock_bound();
    for (int k = 0; k < N_SIZES; k++)
        sizes[k] = !error && is_told[k] ? told[k] : fixed[k];
    if (!error)
        pthread_rwlock_unlock(&bound_lock);
    return error;
}

/* A call is of the sizes that constants tell, and writes none of them. */
static int check_call(void *const *buffers, const int64_t *sizes) {
    int64_t extents[N_EXTENTS + 1], others[N_CONSTANT_EXTENTS + 1];
    for (int k = 0; k < N_SIZES; k++)
        if (is_told[k] && sizes[k] != told[k])
            return failed(ERROR_SIZE, KERNEL ": size `%s` is %lld, but constants tell %lld",
                          size_names[k], (long long)sizes[k], (long long)told[k]);
    extents_of(sizes, extents);
    constant_extents(sizes, others);
    return check_apart(buffers, extents, bound, constant_arguments, N_CONSTANTS, others);
}

/* Room for what the kernel packs at these sizes and has not yet, and a run that fills it. */
static int pack(const Kernel *kernel, const Team *team, const int64_t *sizes) {
    int64_t bytes[MOST_ARGUMENTS + 1];
    void *before[MOST_ARGUMENTS + 1], *none[N_ARGUMENTS + 1] = {0};
    int error = 0;
    kernel->packed_bytes(sizes, bytes);
    memcpy(before, kernel->packed, kernel->n_packed * sizeof *before);
    for (int k = 0; k < kernel->n_packed && !error; k++)
        if (bytes[k] > 0 && !before[k])
            error = make_room(bytes[k], kernel->packed + k);
    if (!error)
        error = run_kernel(kernel, team, none, sizes, 1);
    for (int k = 0; k < kernel->n_packed && error; k++)
        if (!before[k])
            drop(kernel->packed + k, 1);
    return error;
}

static bool is_packed(const Kernel *kernel, const int64_t *sizes) {
    int64_t bytes[MOST_ARGUMENTS + 1];
    kernel->packed_bytes(sizes, bytes);
    for (int k = 0; k < kernel->n_packed; k++)
        if (bytes[k] > 0 && !kernel->packed[k])
            return false;
    return true;
}

static int run_bound(const Level *level, const Team *team, void *const *buffers, const int64_t *sizes) {
    const Kernel *kernel = serving(level->kernels, sizes);
    for (;;) {
        int error = lock_bound();
        if (error)
            return error;
        bool runs = !(error = check_call(buffers, sizes)) && is_packed(kernel, sizes);
        if (runs)
            error = run_kernel(kernel, team, buffers, sizes, 0);
        pthread_rwlock_unlock(&bound_lock);
        if (runs || error)
            return error;
        pthread_rwlock_wrlock(&bound_lock); /* others may have bound or packed meanwhile */
        if (is_bound && !(error = check_call(buffers, sizes)) && !is_packed(kernel, sizes))
            error = pack(kernel, team, sizes);
        pthread_rwlock_unlock(&bound_lock);
        if (error)
            return error;
    }
}

/* Between others' calls; sizes that constants tell are within their bounds. */
static int bind_checked(void *const *constants, const int64_t *sizes) {
    int64_t extents[N_CONSTANT_EXTENTS + 1];
    for (int k = 0; k < N_SIZES && constants; k++) {
        int error = is_told[k] ? check_size(k, sizes[k]) : 0;
        if (error)
            return error;
    }
    constant_extents(sizes, extents);
    int error = constants ? check_memory(constants, constant_arguments, N_CONSTANTS, extents) : 0;
    if (error)
        return error;
    pthread_rwlock_wrlock(&bound_lock);
    error = bind_now(constants, sizes);
    pthread_rwlock_unlock(&bound_lock);
    return error;
}

int NAME(_bind)(void *const *constants, const int64_t *sizes) {
    if (constants && N_SIZES && !sizes)
        return failed(ERROR_CALL, KERNEL ": the values of its sizes are null");
    return bind_checked(constants, constants ? sizes : fixed);
}

int NAME(_bind_tensors)(DLTensor *const *tensors) {
    int64_t sizes[N_SIZES + 1], extents[N_CONSTANT_EXTENTS + 1];
    void *constants[N_CONSTANTS + 1];
    memcpy(sizes, fixed, sizeof fixed);
    int error = read_tensors(tensors, constant_arguments, N_CONSTANTS, constant_sizes, sizes, constants);
    if (error)
        return error;
    constant_extents(sizes, extents);
    if ((error = check_extents(tensors, constant_arguments, N_CONSTANTS, extents)))
        return error;
    return tensors[0]->device.device_type == CPU
               ? bind_checked(constants, sizes)
               : failed(ERROR_DEVICE, KERNEL ": constants are not in memory of the CPU");
}

int FFI_NAME(_bind)(void *handle, const FfiAny *args, int32_t n, FfiAny *result) {
    (void)handle;
    DLTensor *tensors[N_CONSTANTS + 1];
    if (n != N_CONSTANTS)
        return raised(failed(ERROR_CALL, KERNEL ": has %d constants, %d are given", N_CONSTANTS, (int)n));
    int error = ffi_tensors(args, n, constant_arguments, tensors);
    return ffi_done(error ? error : NAME(_bind_tensors)(tensors), result);
}
