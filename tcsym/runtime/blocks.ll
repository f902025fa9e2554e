; Memory of large results: blocks that are used again when the arrays that had them are gone.
; Loaded by blocks.py. All of it runs under Python's lock; the lock here is for whoever frees without.

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-unknown-linux-gnu"

; least: bytes of a large array. loader: Python function that sets `new_array`. idle: bytes in `slots`,
; oldest first, at most `most`. clock: number of blocks that became idle so far. capsule: numpy's
; memory handler, whose place in an array object is `handler_at`. new_from_descr, ndarray: numpy's.
;               least new_array loader lock count idle most clock capsule handler_at new_from_descr ndarray slots
%State = type { i64, ptr, ptr, i64, i64, i64, i64, i64, ptr, i64, ptr, ptr, [16 x ptr] }
; A block is the address of its contents, a multiple of 2 MiB. The page before has its capacity, and
; what the clock showed when it became idle.

declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @madvise(ptr, i64, i32)
declare void @Py_IncRef(ptr)
declare void @PyErr_Clear()
declare i32 @PyTraceMalloc_Track(i32, i64, i64)
declare i64 @llvm.ctlz.i64(i64, i1)
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.x86.sse2.pause()

define internal void @lock(ptr %state) {
entry:
  %at = getelementptr %State, ptr %state, i32 0, i32 3
  br label %try
try:
  %pair = cmpxchg ptr %at, i64 0, i64 1 acquire monotonic
  %got = extractvalue { i64, i1 } %pair, 1
  br i1 %got, label %done, label %wait
wait:
  call void @llvm.x86.sse2.pause()
  br label %try
done:
  ret void
}

define internal void @unlock(ptr %state) {
  %at = getelementptr %State, ptr %state, i32 0, i32 3
  store atomic i64 0, ptr %at release, align 8
  ret void
}

define internal i64 @capacity(ptr %block) {
  %head = getelementptr i8, ptr %block, i64 -4096
  %bytes = load i64, ptr %head
  ret i64 %bytes
}

define internal void @unmap(ptr %block) {
  %bytes = call i64 @capacity(ptr %block)
  %head = getelementptr i8, ptr %block, i64 -4096
  %all = add i64 %bytes, 4096
  %1 = call i32 @munmap(ptr %head, i64 %all)
  ret void
}

; Rounded up to an eighth of its power of two, and to pages: blocks of like sizes replace another.
define internal i64 @rounded(i64 %bytes) {
  %some = call i64 @llvm.umax.i64(i64 %bytes, i64 4096)
  %zeros = call i64 @llvm.ctlz.i64(i64 %some, i1 false)
  %exponent = sub i64 60, %zeros
  %eighth = shl i64 1, %exponent
  %unit = call i64 @llvm.umax.i64(i64 %eighth, i64 4096)
  %less = sub i64 %unit, 1
  %sum = add i64 %some, %less
  %mask = xor i64 %less, -1
  %result = and i64 %sum, %mask
  ret i64 %result
}

; The slot at a place goes; those behind it move up.
define internal ptr @removed(ptr %state, i64 %place) {
  %slots = getelementptr %State, ptr %state, i32 0, i32 12
  %at = getelementptr ptr, ptr %slots, i64 %place
  %block = load ptr, ptr %at
  %count_at = getelementptr %State, ptr %state, i32 0, i32 4
  %count = load i64, ptr %count_at
  %fewer = sub i64 %count, 1
  %behind = sub i64 %fewer, %place
  %length = mul i64 %behind, 8
  %next = getelementptr ptr, ptr %at, i64 1
  call void @llvm.memmove.p0.p0.i64(ptr %at, ptr %next, i64 %length, i1 false)
  store i64 %fewer, ptr %count_at
  %bytes = call i64 @capacity(ptr %block)
  %idle_at = getelementptr %State, ptr %state, i32 0, i32 5
  %idle = load i64, ptr %idle_at
  %less = sub i64 %idle, %bytes
  store i64 %less, ptr %idle_at
  ret ptr %block
}

; Frees the oldest block if nobody wanted it while 64 others became idle.
define internal void @drop_old(ptr %state) {
entry:
  %count_at = getelementptr %State, ptr %state, i32 0, i32 4
  %count = load i64, ptr %count_at
  %any = icmp ugt i64 %count, 0
  br i1 %any, label %look, label %done
look:
  %slots = getelementptr %State, ptr %state, i32 0, i32 12
  %oldest = load ptr, ptr %slots
  %stamp_at = getelementptr i8, ptr %oldest, i64 -4088
  %stamp = load i64, ptr %stamp_at
  %clock_at = getelementptr %State, ptr %state, i32 0, i32 7
  %clock = load i64, ptr %clock_at
  %age = sub i64 %clock, %stamp
  %is_old = icmp ugt i64 %age, 64
  br i1 %is_old, label %drop, label %done
drop:
  %block = call ptr @removed(ptr %state, i64 0)
  call void @unmap(ptr %block)
  br label %done
done:
  ret void
}

; Frees the oldest blocks until %more bytes and one more block may be kept.
define internal void @make_room(ptr %state, i64 %more) {
entry:
  %count_at = getelementptr %State, ptr %state, i32 0, i32 4
  %idle_at = getelementptr %State, ptr %state, i32 0, i32 5
  %most_at = getelementptr %State, ptr %state, i32 0, i32 6
  br label %check
check:
  %count = load i64, ptr %count_at
  %idle = load i64, ptr %idle_at
  %most = load i64, ptr %most_at
  %sum = add i64 %idle, %more
  %over = icmp ugt i64 %sum, %most
  %full = icmp uge i64 %count, 16
  %either = or i1 %over, %full
  %any = icmp ugt i64 %count, 0
  %go = and i1 %either, %any
  br i1 %go, label %evict, label %done
evict:
  %block = call ptr @removed(ptr %state, i64 0)
  call void @unmap(ptr %block)
  br label %check
done:
  ret void
}

; A new block; null if there is no memory.
define internal ptr @mapped(i64 %bytes) {
entry:
  %all = add i64 %bytes, 2101248 ; 2 MiB to align within, and the page before
  %start = call ptr @mmap(ptr null, i64 %all, i32 3, i32 34, i32 -1, i64 0)
  %low = ptrtoint ptr %start to i64
  %failed = icmp eq i64 %low, -1
  br i1 %failed, label %none, label %align
none:
  ret ptr null
align:
  %after = add i64 %low, 2101247 ; 4096 + 2 MiB - 1
  %place = and i64 %after, -2097152
  %block = inttoptr i64 %place to ptr
  %head = getelementptr i8, ptr %block, i64 -4096
  %head_at = ptrtoint ptr %head to i64
  %before = sub i64 %head_at, %low
  %has_before = icmp ne i64 %before, 0
  br i1 %has_before, label %cut_before, label %end
cut_before:
  %1 = call i32 @munmap(ptr %start, i64 %before)
  br label %end
end:
  %stop = add i64 %place, %bytes
  %last = add i64 %low, %all
  %rest = sub i64 %last, %stop
  %has_rest = icmp ne i64 %rest, 0
  br i1 %has_rest, label %cut_rest, label %advise
cut_rest:
  %stop_at = inttoptr i64 %stop to ptr
  %2 = call i32 @munmap(ptr %stop_at, i64 %rest)
  br label %advise
advise:
  store i64 %bytes, ptr %head
  %3 = call i32 @madvise(ptr %block, i64 %bytes, i32 14) ; MADV_HUGEPAGE
  ret ptr %block
}

; A block of at least %bytes: the smallest idle one that is at most a quarter larger, or a new one.
define internal ptr @take(ptr %state, i64 %bytes) {
entry:
  %too_many = icmp ugt i64 %bytes, 70368744177664
  br i1 %too_many, label %none, label %search
none:
  ret ptr null
search:
  %need = call i64 @rounded(i64 %bytes)
  %quarter = lshr i64 %need, 2
  %largest = add i64 %need, %quarter
  call void @lock(ptr %state)
  %count_at = getelementptr %State, ptr %state, i32 0, i32 4
  %count = load i64, ptr %count_at
  %slots = getelementptr %State, ptr %state, i32 0, i32 12
  br label %look
look:
  %k = phi i64 [ 0, %search ], [ %next, %compare ]
  %best = phi i64 [ -1, %search ], [ %chosen, %compare ]
  %bound = phi i64 [ %largest, %search ], [ %lower, %compare ]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %compare, label %found
compare:
  %at = getelementptr ptr, ptr %slots, i64 %k
  %candidate = load ptr, ptr %at
  %size = call i64 @capacity(ptr %candidate)
  %enough = icmp uge i64 %size, %need
  %small = icmp ule i64 %size, %bound
  %fits = and i1 %enough, %small
  %chosen = select i1 %fits, i64 %k, i64 %best
  %lower = select i1 %fits, i64 %size, i64 %bound
  %next = add i64 %k, 1
  br label %look
found:
  %has = icmp sge i64 %best, 0
  br i1 %has, label %reuse, label %fresh
reuse:
  %block = call ptr @removed(ptr %state, i64 %best)
  call void @unlock(ptr %state)
  ret ptr %block
fresh:
  call void @unlock(ptr %state)
  %new = call ptr @mapped(i64 %need)
  ret ptr %new
}

define internal void @give(ptr %state, ptr %block) {
entry:
  %bytes = call i64 @capacity(ptr %block)
  %most_at = getelementptr %State, ptr %state, i32 0, i32 6
  %most = load i64, ptr %most_at
  %never = icmp ugt i64 %bytes, %most
  br i1 %never, label %drop, label %keep
drop:
  call void @unmap(ptr %block)
  ret void
keep:
  call void @lock(ptr %state)
  call void @drop_old(ptr %state)
  call void @make_room(ptr %state, i64 %bytes)
  %count_at = getelementptr %State, ptr %state, i32 0, i32 4
  %count = load i64, ptr %count_at
  %slots = getelementptr %State, ptr %state, i32 0, i32 12
  %at = getelementptr ptr, ptr %slots, i64 %count
  store ptr %block, ptr %at
  %more = add i64 %count, 1
  store i64 %more, ptr %count_at
  %idle_at = getelementptr %State, ptr %state, i32 0, i32 5
  %idle = load i64, ptr %idle_at
  %sum = add i64 %idle, %bytes
  store i64 %sum, ptr %idle_at
  %clock_at = getelementptr %State, ptr %state, i32 0, i32 7
  %clock = load i64, ptr %clock_at
  %tick = add i64 %clock, 1
  store i64 %tick, ptr %clock_at
  %stamp_at = getelementptr i8, ptr %block, i64 -4088
  store i64 %tick, ptr %stamp_at
  call void @unlock(ptr %state)
  ret void
}

; Frees idle blocks until at most `most` bytes are left.
define void @tcsym_trim(ptr %state) {
entry:
  call void @lock(ptr %state)
  %idle_at = getelementptr %State, ptr %state, i32 0, i32 5
  %most_at = getelementptr %State, ptr %state, i32 0, i32 6
  br label %check
check:
  %idle = load i64, ptr %idle_at
  %most = load i64, ptr %most_at
  %over = icmp ugt i64 %idle, %most
  br i1 %over, label %evict, label %done
evict:
  %block = call ptr @removed(ptr %state, i64 0)
  call void @unmap(ptr %block)
  br label %check
done:
  call void @unlock(ptr %state)
  ret void
}

; A new dense array of %bytes, owner of a block; null, and no error set, if there is none.
define ptr @tcsym_new_array(ptr %state, i32 %rank, ptr %shape, ptr %descr, i64 %bytes) {
entry:
  %block = call ptr @take(ptr %state, i64 %bytes)
  %none = icmp eq ptr %block, null
  br i1 %none, label %failed, label %make
failed:
  ret ptr null
make:
  call void @Py_IncRef(ptr %descr) ; the next call steals one
  %make_at = getelementptr %State, ptr %state, i32 0, i32 10
  %make_array = load ptr, ptr %make_at
  %type_at = getelementptr %State, ptr %state, i32 0, i32 11
  %type = load ptr, ptr %type_at
  %array = call ptr %make_array(ptr %type, ptr %descr, i32 %rank, ptr %shape, ptr null, ptr %block, i32 1281, ptr null)
  %refused = icmp eq ptr %array, null
  br i1 %refused, label %undo, label %own
undo:
  call void @PyErr_Clear()
  call void @give(ptr %state, ptr %block)
  ret ptr null
own:
  %flags_at = getelementptr i8, ptr %array, i64 64
  %flags = load i32, ptr %flags_at
  %owned = or i32 %flags, 4
  store i32 %owned, ptr %flags_at
  %capsule_at = getelementptr %State, ptr %state, i32 0, i32 8
  %capsule = load ptr, ptr %capsule_at
  call void @Py_IncRef(ptr %capsule)
  %offset_at = getelementptr %State, ptr %state, i32 0, i32 9
  %offset = load i64, ptr %offset_at
  %handler_at = getelementptr i8, ptr %array, i64 %offset
  store ptr %capsule, ptr %handler_at
  %address = ptrtoint ptr %block to i64
  %1 = call i32 @PyTraceMalloc_Track(i32 389047, i64 %address, i64 %bytes) ; numpy's domain
  ret ptr %array
}

; ---- numpy's memory handler: what an array does with its block later

define ptr @tcsym_block_malloc(ptr %state, i64 %bytes) {
  %least = call i64 @llvm.umax.i64(i64 %bytes, i64 1)
  %block = call ptr @take(ptr %state, i64 %least)
  ret ptr %block
}

define ptr @tcsym_block_calloc(ptr %state, i64 %count, i64 %each) {
entry:
  %pair = call { i64, i1 } @llvm.umul.with.overflow.i64(i64 %count, i64 %each)
  %bytes = extractvalue { i64, i1 } %pair, 0
  %over = extractvalue { i64, i1 } %pair, 1
  br i1 %over, label %none, label %get
none:
  ret ptr null
get:
  %block = call ptr @tcsym_block_malloc(ptr %state, i64 %bytes)
  %failed = icmp eq ptr %block, null
  br i1 %failed, label %none, label %clear
clear:
  call void @llvm.memset.p0.i64(ptr %block, i8 0, i64 %bytes, i1 false)
  ret ptr %block
}
declare { i64, i1 } @llvm.umul.with.overflow.i64(i64, i64)

define ptr @tcsym_block_realloc(ptr %state, ptr %old, i64 %bytes) {
entry:
  %new = call ptr @tcsym_block_malloc(ptr %state, i64 %bytes)
  %failed = icmp eq ptr %new, null
  %first = icmp eq ptr %old, null
  %nothing = or i1 %failed, %first
  br i1 %nothing, label %done, label %copy
copy:
  %had = call i64 @capacity(ptr %old)
  %kept = call i64 @llvm.umin.i64(i64 %had, i64 %bytes)
  call void @llvm.memcpy.p0.p0.i64(ptr %new, ptr %old, i64 %kept, i1 false)
  call void @give(ptr %state, ptr %old)
  br label %done
done:
  ret ptr %new
}

define void @tcsym_block_free(ptr %state, ptr %block, i64 %bytes) {
entry:
  %nothing = icmp eq ptr %block, null
  br i1 %nothing, label %done, label %go
go:
  call void @give(ptr %state, ptr %block)
  br label %done
done:
  ret void
}
