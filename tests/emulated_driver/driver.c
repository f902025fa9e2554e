/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for libcuda.so.1 with two devices: our run time runs on it, and pycuda, unmodified.
 *
 * The device's memory is memory of the host that ends at a page which must not be touched. A module
 * is a text that a test has announced (`emulated_module`), with functions of the host's for its
 * entries: those that the twin launches. Work on streams is done as late as it may: when something
 * waits for it. What a device would refuse (no current context, more shared memory than a function
 * was allowed, memory or waiting while a stream is captured) is refused. What is put on a captured
 * stream goes into its graph, and is done by each launch of that.
 *
 * All other names that pycuda links with are weak functions which say CUDA_ERROR_STUB_LIBRARY. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef int Result;
typedef uint64_t Pointer;
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, INVALID_CONTEXT = 201 };
enum { INVALID_PTX = 218, NO_FILE = 301, NOT_FOUND = 500, LAUNCH_FAILED = 719, TOO_LARGE = 720, CAPTURED = 900, ISOLATED = 905, IMPLICIT = 906, NOT_UPDATED = 910 };
enum { PROCESSORS = 4, DEVICES = 2, MOST_DEPTH = 64, MOST_WORK = 4096, MOST_MODULES = 512, MOST_FUNCTIONS = 64, MOST_OWNED = 65536, MOST_CAPTURES = 8, MOST_NODES = 2048, MOST_WORDS = 512 };
enum { PAGE = 4096, ALIGNED = 256, PLAIN_SHARED = 48 * 1024, MOST_SHARED = 227 * 1024 };

typedef void Region(void *data, char *shared, int64_t block, int64_t thread, void *simt);
typedef int32_t Grid(Region *, void *, int64_t, int64_t, int64_t, int64_t, int64_t);
typedef struct {
    char name[64];
    Region *region;
    int shared_bytes; /* most it may have */
    int n_parameters;
} Function;
typedef struct {
    char *text;
    int n_functions;
    Function functions[MOST_FUNCTIONS];
} Module;
typedef struct {
    Function *function; /* null: a memset of `blocks` values of `threads` bytes, or, from `words`, a copy */
    void *words, *stream;
    Pointer at;
    unsigned value;
    int64_t blocks, threads, shared_bytes, together;
} Work;

typedef struct {
    void *at;
    void (*destroy)(void *);
    int count;
} Object;
typedef struct {
    Work nodes[MOST_NODES];
    Object *object;
    int n_nodes;
} Graph;
typedef struct {
    void *stream;
    Graph *graph; /* null: none */
    int mode;
    int64_t id;
    pthread_t thread;
} Capture;

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct {
    Pointer first, end;
    int device;
} owned[MOST_OWNED]; /* a ring of the last allocations */
static int n_owned;
static Module modules[MOST_MODULES];
static Work work[MOST_WORK];
static Capture captures[MOST_CAPTURES];
static _Thread_local int mode; /* 0: global, 1: of the thread, 2: relaxed */
static int n_modules, n_work;
static Grid *grid;
static Result broken; /* what every call says after a kernel failed */
/* What tests look at and set. */
static struct {
    int64_t launches, allocations, frees, waits, modules, memsets, orders, depth; /* counts */
    int64_t stream, shared_bytes, blocks, threads, device, allowed, together;     /* of a last launch */
    int64_t graphs, instances, updates, drops, copies;                             /* counts */
    int64_t capability, fail_launch, fail_capture, is_noop, devices;              /* set by tests */
} seen = {.capability = 80, .devices = DEVICES};
static _Thread_local intptr_t stack[MOST_DEPTH];
static _Thread_local int depth;
static const intptr_t CONTEXTS = 0x1000; /* of device k: that plus k */

int64_t *emulated(void) { return (int64_t *)&seen; }
void emulated_grid(Grid *simt) { grid = simt; }

static Module *module_of(const char *text) {
    for (int k = 0; k < n_modules; k++)
        if (!strcmp(modules[k].text, text))
            return modules + k;
    return NULL;
}

/* As the head of the function in PTX has. */
static int parameters_of(const char *text, const char *name) {
    char head[96];
    snprintf(head, sizeof head, ".entry %s(", name);
    const char *at = strstr(text, head), *end = at ? strchr(at + strlen(head), ')') : NULL;
    int n = 0;
    for (; at && (at = strstr(at + 1, ".param")) && at < end;)
        n++;
    return n;
}

void emulated_module(const char *text, const char *name, Region *region) {
    pthread_mutex_lock(&lock);
    Module *module = module_of(text);
    if (!module) {
        module = modules + n_modules++ % MOST_MODULES;
        module->text = strdup(text);
        module->n_functions = 0;
    }
    Function *function = module->functions;
    while (function < module->functions + module->n_functions && strcmp(function->name, name))
        function++;
    if (function == module->functions + module->n_functions)
        module->n_functions++;
    snprintf(function->name, sizeof function->name, "%s", name);
    function->region = region;
    function->shared_bytes = PLAIN_SHARED;
    function->n_parameters = parameters_of(text, name);
    pthread_mutex_unlock(&lock);
}

static void finish(void) {
    for (int k = 0; k < n_work; k++) {
        Work *w = work + k;
        if (!w->function && w->words) {
            memcpy((void *)w->at, w->words, (size_t)w->blocks);
            continue; /* they are not ours */
        } else if (!w->function) {
            for (int64_t i = 0; i < w->blocks; i++)
                memcpy((char *)w->at + i * w->threads, &w->value, w->threads);
        } else if (!broken) {
            if (grid(w->function->region, w->words, w->blocks, w->threads, w->shared_bytes, w->together,
                     0))
                broken = LAUNCH_FAILED;
        }
        free(w->words);
    }
    n_work = 0;
}

static Capture *capture_on(void *stream) {
    for (Capture *c = captures; stream && c < captures + MOST_CAPTURES; c++)
        if (c->graph && c->stream == stream)
            return c;
    return NULL;
}

/* Whether a call that no graph can hold is an error now. */
static int is_refused(void) {
    for (Capture *c = captures; mode < 2 && c < captures + MOST_CAPTURES; c++)
        if (c->graph && (c->mode == 0 || (c->mode == 1 && pthread_equal(c->thread, pthread_self()))))
            return 1;
    return 0;
}

static Result add(Work w) {
    Capture *c = capture_on(w.stream);
    if (c)
        return c->graph->nodes[c->graph->n_nodes++] = w, broken;
    for (c = captures; !w.stream && c < captures + MOST_CAPTURES; c++)
        if (c->graph && !((intptr_t)c->stream & 1)) /* of a stream that the default one waits for */
            return IMPLICIT;
    pthread_mutex_lock(&lock);
    if (n_work == MOST_WORK)
        finish();
    work[n_work++] = w;
    pthread_mutex_unlock(&lock);
    return broken;
}

static Result waited(void) {
    if (is_refused())
        return CAPTURED;
    pthread_mutex_lock(&lock);
    seen.waits++;
    finish();
    pthread_mutex_unlock(&lock);
    return broken;
}

static Result needed(void) { return depth ? broken : INVALID_CONTEXT; }

/* ---- devices and contexts */

Result cuInit(unsigned flags) { return OK; }
Result cuDriverGetVersion(int *v) { return *v = 13000, OK; }
Result cuDeviceGetCount(int *n) { return *n = (int)seen.devices, OK; }
Result cuDeviceGet(int *device, int k) { return *device = k, k < DEVICES ? OK : INVALID_DEVICE; }
Result cuDeviceGetName(char *s, int n, int device) {
    return snprintf(s, n, "emulated device %d", device), OK;
}
Result cuDeviceComputeCapability(int *major, int *minor, int device) {
    *major = (int)seen.capability / 10;
    *minor = (int)seen.capability % 10;
    return OK;
}
Result cuDeviceTotalMem_v2(size_t *n, int device) { return *n = (size_t)1 << 32, OK; }
Result cuDeviceGetAttribute(int *v, int attribute, int device) {
    enum { THREADS = 1, WARP = 10, COUNT = 16, MAJOR = 75, MINOR = 76, OPTIN = 97 };
    int major = (int)seen.capability / 10, minor = (int)seen.capability % 10;
    *v = attribute == THREADS      ? 1024
         : attribute == WARP       ? 32
         : attribute == COUNT      ? PROCESSORS
         : attribute == MAJOR      ? major
         : attribute == MINOR      ? minor
         : attribute == OPTIN      ? MOST_SHARED
                                   : 0;
    return OK;
}
Result cuDevicePrimaryCtxRetain(void **context, int device) {
    return *context = (void *)(CONTEXTS + device), OK;
}
Result cuDevicePrimaryCtxRelease_v2(int device) { return OK; }
Result cuCtxPushCurrent_v2(void *context) {
    stack[depth++] = (intptr_t)context;
    seen.depth = depth;
    return OK;
}
Result cuCtxPopCurrent_v2(void **context) {
    if (!depth)
        return INVALID_CONTEXT;
    *context = (void *)stack[--depth];
    seen.depth = depth;
    return OK;
}
Result cuCtxGetCurrent(void **context) {
    return *context = depth ? (void *)stack[depth - 1] : NULL, OK;
}
Result cuCtxSetCurrent(void *context) {
    if (!depth)
        depth = 1;
    return stack[depth - 1] = (intptr_t)context, OK;
}
Result cuCtxGetDevice(int *device) {
    return depth ? (*device = (int)(stack[depth - 1] - CONTEXTS), OK) : INVALID_CONTEXT;
}
Result cuCtxSynchronize(void) { return depth ? waited() : INVALID_CONTEXT; }
Result cuCtxAttach(void **context, unsigned flags) { return cuCtxGetCurrent(context); }
Result cuCtxDetach(void *context) { return OK; }

/* ---- memory */

Result cuMemAlloc_v2(Pointer *p, size_t n) {
    if (needed())
        return needed();
    if (is_refused())
        return CAPTURED;
    if (n > (size_t)1 << 32)
        return OUT_OF_MEMORY;
    size_t size = (n + PAGE - 1) / PAGE * PAGE;
    char *base = mmap(NULL, size + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(base + size, PAGE, PROT_NONE);
    memset(base, 0xff, size); /* no numbers */
    *p = (Pointer)(base + (size - n) / ALIGNED * ALIGNED);
    pthread_mutex_lock(&lock);
    int k = n_owned++ % MOST_OWNED;
    owned[k].first = *p;
    owned[k].end = *p + n;
    cuCtxGetDevice(&owned[k].device);
    seen.allocations++;
    pthread_mutex_unlock(&lock);
    return OK;
}
Result cuPointerGetAttribute(void *value, int attribute, Pointer p) {
    enum { DEVICE_ORDINAL = 9 };
    for (int k = 0; attribute == DEVICE_ORDINAL && k < n_owned && k < MOST_OWNED; k++)
        if (owned[k].first <= p && p < owned[k].end)
            return *(int *)value = owned[k].device, OK;
    return INVALID_VALUE;
}
Result cuMemFree_v2(Pointer p) { return seen.frees++, waited(); } /* never used again: late uses crash not */
Result cuMemGetInfo_v2(size_t *left, size_t *all) { return *left = *all = (size_t)1 << 32, OK; }
Result cuMemHostAlloc(void **p, size_t n, unsigned flags) {
    return *p = aligned_alloc(PAGE, (n + PAGE - 1) / PAGE * PAGE), OK;
}
Result cuMemFreeHost(void *p) { return free(p), OK; }
static Result moved(void *to, const void *from, size_t n) {
    if (needed())
        return needed();
    Result result = waited();
    memcpy(to, from, n);
    return result;
}
Result cuMemcpyHtoD_v2(Pointer to, const void *from, size_t n) { return moved((void *)to, from, n); }
Result cuMemcpyDtoH_v2(void *to, Pointer from, size_t n) { return moved(to, (void *)from, n); }
Result cuMemcpyDtoD_v2(Pointer to, Pointer from, size_t n) {
    return moved((void *)to, (void *)from, n);
}
Result cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t n, void *stream) {
    seen.copies++;
    return needed() ? needed() : add((Work){.at = to, .words = (void *)from, .blocks = (int64_t)n, .stream = stream});
}
Result cuMemsetD32Async(Pointer at, unsigned value, size_t n, void *stream) {
    if (needed())
        return needed();
    seen.memsets++;
    return add((Work){.at = at, .value = value, .blocks = n, .threads = 4, .stream = stream});
}

/* ---- streams and events */

Result cuStreamCreate(void **stream, unsigned flags) {
    static intptr_t next = 0x2000;
    if (is_refused())
        return CAPTURED;
    if (seen.fail_capture == 1)
        return OUT_OF_MEMORY;
    return *stream = (void *)((next += 16) | (flags & 1)), OK;
}
Result cuStreamDestroy_v2(void *stream) { return OK; }
Result cuStreamSynchronize(void *stream) { return capture_on(stream) ? CAPTURED : waited(); }
Result cuStreamQuery(void *stream) { return OK; }
Result cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    Capture *c = capture_on(stream);
    return seen.orders++, *(int64_t *)event == (c ? c->id : 0) ? OK : ISOLATED;
}
Result cuEventCreate(void **event, unsigned flags) { return *event = calloc(1, 8), OK; }
Result cuEventDestroy_v2(void *event) { return free(event), OK; }
Result cuEventRecord(void *event, void *stream) {
    Capture *c = capture_on(stream);
    return *(int64_t *)event = c ? c->id : 0, OK;
}
Result cuEventSynchronize(void *event) { return waited(); }
Result cuEventQuery(void *event) { return OK; }

/* ---- graphs */

Result cuThreadExchangeStreamCaptureMode(int *with) {
    int before = mode;
    return mode = *with, *with = before, OK;
}
Result cuStreamIsCapturing(void *stream, int *status) { return *status = !!capture_on(stream), OK; }
Result cuStreamGetCaptureInfo_v2(void *stream, int *status, uint64_t *id, void **graph, void *rest,
                                 void *count) {
    Capture *c = capture_on(stream);
    *status = !!c;
    *id = c ? (uint64_t)c->id : 0;
    return *graph = c ? c->graph : NULL, OK;
}
Result cuStreamBeginCapture_v2(void *stream, int how) {
    static int64_t next;
    Capture *c = captures;
    if (seen.fail_capture == 2)
        return OUT_OF_MEMORY;
    while (c->graph)
        c++;
    if (!stream || capture_on(stream))
        return CAPTURED;
    *c = (Capture){stream, calloc(1, sizeof(Graph)), how, ++next, pthread_self()};
    return OK;
}
Result cuStreamEndCapture(void *stream, void **graph) {
    Capture *c = capture_on(stream);
    return *graph = c ? c->graph : NULL, c ? c->graph = NULL, OK : INVALID_VALUE;
}
static Work copied(Work w) {
    void *words = w.words;
    if (words && w.function)
        w.words = memcpy(malloc(MOST_WORDS), words, MOST_WORDS);
    return w;
}
static void fill(Graph *to, const Graph *from) {
    for (int k = 0; k < to->n_nodes; k++)
        if (to->nodes[k].function)
            free(to->nodes[k].words);
    to->n_nodes = from->n_nodes;
    for (int k = 0; k < from->n_nodes; k++)
        to->nodes[k] = copied(from->nodes[k]);
}
Result cuGraphDestroy(void *graph) {
    Graph *g = graph;
    fill(g, &(Graph){.n_nodes = 0});
    if (g->object && !--g->object->count)
        g->object->destroy(g->object->at);
    return seen.drops++, free(g), OK;
}
Result cuGraphExecDestroy(void *ready) { return cuGraphDestroy(ready); }
Result cuGraphInstantiateWithFlags(void **ready, void *graph, unsigned long long flags) {
    if (is_refused())
        return CAPTURED;
    Graph *made = *ready = calloc(1, sizeof *made);
    fill(made, graph);
    made->object = ((Graph *)graph)->object;
    if (made->object)
        made->object->count++;
    return seen.instances++, OK;
}
Result cuGraphExecUpdate_v2(void *ready, void *graph, void *why) {
    Graph *to = ready, *from = graph;
    for (int k = 0; k < from->n_nodes; k++)
        if (to->n_nodes != from->n_nodes || to->nodes[k].function != from->nodes[k].function)
            return NOT_UPDATED;
    return fill(to, from), seen.updates++, OK;
}
Result cuGraphLaunch(void *ready, void *stream) {
    Graph *g = ready;
    if (capture_on(stream))
        return CAPTURED;
    Result result = needed();
    for (int k = 0; k < g->n_nodes && !result && !seen.is_noop; k++) {
        Work w = copied(g->nodes[k]);
        w.stream = stream;
        result = add(w);
    }
    return seen.graphs++, result;
}
Result cuUserObjectCreate(void **object, void *at, void (*destroy)(void *), unsigned count, unsigned flags) {
    Object *made = *object = malloc(sizeof *made);
    return *made = (Object){at, destroy, (int)count}, OK;
}
Result cuGraphRetainUserObject(void *graph, void *object, unsigned count, unsigned flags) {
    return ((Graph *)graph)->object = object, OK; /* the reference moves */
}

/* ---- modules and launches */

Result cuModuleLoadDataEx(void **module, const void *image, unsigned n, int *options, void **values) {
    enum { ERROR_LOG = 5 };
    if (needed())
        return needed();
    *module = module_of(image);
    if (*module)
        return seen.modules++, OK;
    for (unsigned k = 0; k < n; k++)
        if (options[k] == ERROR_LOG)
            strcpy(values[k], "ptxas fatal: a text that nobody announced");
    return INVALID_PTX;
}
Result cuModuleLoadData(void **module, const void *image) {
    return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}
Result cuModuleLoad(void **module, const char *path) {
    FILE *file = fopen(path, "rb");
    static char text[1 << 24];
    if (!file)
        return NO_FILE;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return cuModuleLoadData(module, text);
}
Result cuModuleUnload(void *module) { return OK; }
Result cuModuleGetFunction(void **function, void *module, const char *name) {
    Module *m = module;
    for (int k = 0; k < m->n_functions; k++)
        if (!strcmp(m->functions[k].name, name))
            return *function = m->functions + k, OK;
    return NOT_FOUND;
}
Result cuFuncSetAttribute(void *function, int attribute, int value) {
    enum { SHARED = 8 };
    if (attribute == SHARED && value > MOST_SHARED)
        return INVALID_VALUE;
    if (attribute == SHARED)
        seen.allowed = ((Function *)function)->shared_bytes = value;
    return OK;
}
Result cuFuncGetAttribute(int *v, int attribute, void *function) { return *v = 0, OK; }
Result cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                      void *stream, void **parameters, void **extra) {
    Function *f = function;
    if (needed() || seen.is_noop)
        return needed();
    if (seen.fail_launch)
        return (Result)seen.fail_launch;
    if (!grid_x || !block_x || block_x > 1024 || (int)shared_bytes > f->shared_bytes || parameters)
        return INVALID_VALUE;
    size_t bytes = *(size_t *)extra[3];
    if (bytes > MOST_WORDS)
        return INVALID_VALUE;
    void *words = malloc(MOST_WORDS);
    memcpy(words, extra[1], bytes);
    seen.launches++;
    seen.stream = (int64_t)stream;
    seen.shared_bytes = shared_bytes;
    seen.blocks = grid_x;
    seen.threads = block_x;
    seen.together = 0;
    seen.device = stack[depth - 1] - CONTEXTS;
    return add((Work){.function = f,
                      .words = words,
                      .stream = stream,
                      .blocks = grid_x,
                      .threads = block_x,
                      .shared_bytes = shared_bytes});
}
Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t bytes) {
    return *blocks = 1, OK;
}
Result cuLaunchCooperativeKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y, unsigned block_z,
                                 unsigned shared_bytes, void *stream, void **parameters) {
    Function *f = function;
    size_t bytes = f->n_parameters * sizeof(int64_t);
    int64_t words[f->n_parameters + 1];
    if (grid_x > PROCESSORS)
        return TOO_LARGE;
    for (int k = 0; k < f->n_parameters; k++)
        words[k] = *(int64_t *)parameters[k];
    void *extra[] = {(void *)1, words, (void *)2, &bytes, NULL};
    Result result = cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                   shared_bytes, stream, NULL, extra);
    Capture *c = capture_on(stream);
    if (result == OK && c)
        seen.together = c->graph->nodes[c->graph->n_nodes - 1].together = 1;
    else if (result == OK && n_work)
        seen.together = work[n_work - 1].together = 1;
    return result;
}
Result cuGetErrorString(Result error, const char **text) {
    *text = error == INVALID_PTX       ? "a PTX JIT compilation failed"
            : error == INVALID_VALUE   ? "invalid argument"
            : error == INVALID_CONTEXT ? "invalid device context"
            : error == OUT_OF_MEMORY   ? "out of memory"
            : error == NOT_FOUND       ? "named symbol not found"
            : error == CAPTURED        ? "operation not permitted when stream is capturing"
            : error == LAUNCH_FAILED   ? "unspecified launch failure"
                                       : "another error";
    return OK;
}
Result cuGetErrorName(Result error, const char **text) { return cuGetErrorString(error, text); }
