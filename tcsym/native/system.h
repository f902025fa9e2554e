/* SPDX-License-Identifier: Apache-2.0 */
/* What systems and processors differ in: the clock, sleep until a word changes, advice on memory.
 * Files that include it begin with `#define _GNU_SOURCE`. */
#ifndef TCSYM_SYSTEM_H
#define TCSYM_SYSTEM_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

/* ---- the clock */

#if defined(__APPLE__) /* macOS: never run */
#include <time.h>

/* As cycles of 2.5 GHz. */
static inline uint64_t clock_cycles(void) { return clock_gettime_nsec_np(CLOCK_UPTIME_RAW) / 2 * 5; }
#elif defined(__x86_64__)
#include <x86intrin.h>

static inline uint64_t clock_cycles(void) { return __rdtsc(); }
#elif defined(__aarch64__)
/* The counter's ticks are longer than cycles, by how much a register says: as cycles of 2.5 GHz. */
static inline uint64_t clock_cycles(void) {
    static _Atomic uint64_t each; /* in 256ths; relaxed: threads that find 0 all write the same */
    uint64_t ticks, scale = atomic_load_explicit(&each, memory_order_relaxed);
    if (!scale) {
        uint64_t frequency;
        __asm__ volatile("mrs %0, cntfrq_el0" : "=r"(frequency));
        scale = frequency ? 256 * UINT64_C(2500000000) / frequency : 256;
        atomic_store_explicit(&each, scale ? scale : 1, memory_order_relaxed);
    }
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return (uint64_t)((unsigned __int128)ticks * scale >> 8);
}
#endif

/* ---- sleeping and waking */

/* The system orders `sleep_while` and `wake` of a word: whoever changes it and then wakes finds who
 * sleeps. */
#if defined(__APPLE__) /* macOS: never run */
#include <os/os_sync_wait_on_address.h>

static inline void sleep_while(_Atomic int32_t *word, int32_t value) {
    os_sync_wait_on_address(word, (uint32_t)value, sizeof *word, OS_SYNC_WAIT_ON_ADDRESS_NONE);
}

static inline void wake(_Atomic int32_t *word) {
    os_sync_wake_by_address_any(word, sizeof *word, OS_SYNC_WAKE_BY_ADDRESS_NONE);
}
#else
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline void sleep_while(_Atomic int32_t *word, int32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static inline void wake(_Atomic int32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
}
#endif

/* ---- memory */

static inline void ask_for_huge_pages(void *memory, size_t bytes) {
#if defined(MADV_HUGEPAGE) /* else the system decides */
    madvise(memory, bytes, MADV_HUGEPAGE);
#endif
}

/* Children of forks find zeros there. False where the system cannot (Linux before 4.14, macOS). */
static inline bool wipe_on_fork(void *memory, size_t bytes) {
#if defined(MADV_WIPEONFORK)
    return !madvise(memory, bytes, MADV_WIPEONFORK);
#else
    return false;
#endif
}

#endif
