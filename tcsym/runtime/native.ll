; The run time that generated code and its callers use: worker pool, arenas, launch.
; Loaded once a process by native.py. Structs are zero when fresh; a forked child finds zeros.

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-unknown-linux-gnu"

; busy: 1 while tasks run (a second caller then works alone). workers: threads started.
; patient: 1 = wait without spinning. gomp, thread_num, num_threads: an OpenMP run time's functions;
; gomp_spin: cycles that its threads wait spinning. Times are cycles of the processor's clock:
; warm: until then the threads wait spinning. soon: until then a loop follows the last one closely.
; missed: cycles that threads would have saved since the last loop that did not follow closely.
; remaining: tasks still running on workers, top bit set while the caller sleeps.
;                  busy workers patient gomp_spin gomp thread_num num_threads warm soon missed
%Pool = type { i32, i32, i32, i32, ptr, ptr, ptr, i64, i64, i64, i32, [15 x i32], [255 x %Slot] }
;                                                                remaining
; One worker. state: 0 idle, 1 work posted, 2 asleep, 3 stop, 4 working.
;              state task function data pool thread tasks
%Slot = type { i32, i32, ptr, ptr, ptr, i64, i64, [10 x i64] }
; Scratch memory of one running call. busy; then address and capacity of the shared and private part.
%Block = type { ptr, i64 }
%Arena = type { i64, %Block, %Block }
; parallel_for pool threads shared_arena private_arena private_bytes (tcsym/compiled.py)
%Context = type { ptr, ptr, i64, ptr, ptr, i64 }
%Team = type { ptr, ptr, i64, ptr }

declare i64 @syscall(i64, ...)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare i32 @madvise(ptr, i64, i32)
declare i64 @llvm.readcyclecounter()
declare void @llvm.x86.sse2.pause()

; ---- sleeping and waking

define internal void @sleep_while(ptr %word, i32 %value) {
  ; futex(FUTEX_WAIT | FUTEX_PRIVATE_FLAG)
  %1 = call i64 (i64, ...) @syscall(i64 202, ptr %word, i32 128, i32 %value, ptr null, ptr null, i32 0)
  ret void
}

define internal void @wake(ptr %word) {
  %1 = call i64 (i64, ...) @syscall(i64 202, ptr %word, i32 129, i32 1, ptr null, ptr null, i32 0)
  ret void
}

define internal i64 @spin_cycles(ptr %pool) {
  %at = getelementptr %Pool, ptr %pool, i32 0, i32 2
  %patient = load i32, ptr %at
  %is_patient = icmp ne i32 %patient, 0
  %cycles = select i1 %is_patient, i64 0, i64 100000 ; about 40 microseconds
  ret i64 %cycles
}

; ---- workers

define internal ptr @worker(ptr %slot) {
entry:
  %pool_at = getelementptr %Slot, ptr %slot, i32 0, i32 4
  %pool = load ptr, ptr %pool_at
  %remaining = getelementptr %Pool, ptr %pool, i32 0, i32 10
  br label %idle
idle:
  %start = call i64 @llvm.readcyclecounter()
  %limit = call i64 @spin_cycles(ptr %pool)
  br label %spin
spin:
  %state = load atomic i32, ptr %slot acquire, align 4
  switch i32 %state, label %wait [ i32 1, label %claim
                                   i32 3, label %stop ]
wait:
  call void @llvm.x86.sse2.pause()
  %now = call i64 @llvm.readcyclecounter()
  %spent = sub i64 %now, %start
  %patience = icmp ult i64 %spent, %limit
  br i1 %patience, label %spin, label %doze
doze:
  %dozed = cmpxchg ptr %slot, i32 0, i32 2 acq_rel acquire
  %asleep = extractvalue { i32, i1 } %dozed, 1
  br i1 %asleep, label %sleep, label %idle
sleep:
  call void @sleep_while(ptr %slot, i32 2)
  %woken_by = load atomic i32, ptr %slot acquire, align 4
  %still = icmp eq i32 %woken_by, 2
  br i1 %still, label %sleep, label %idle
claim:
  %claim_try = cmpxchg ptr %slot, i32 1, i32 4 acq_rel acquire
  %claimed = extractvalue { i32, i1 } %claim_try, 1
  br i1 %claimed, label %work, label %idle
work:
  %task_at = getelementptr %Slot, ptr %slot, i32 0, i32 1
  %task32 = load i32, ptr %task_at
  %task = zext i32 %task32 to i64
  %function_at = getelementptr %Slot, ptr %slot, i32 0, i32 2
  %function = load ptr, ptr %function_at
  %data_at = getelementptr %Slot, ptr %slot, i32 0, i32 3
  %data = load ptr, ptr %data_at
  %tasks_at = getelementptr %Slot, ptr %slot, i32 0, i32 6
  %tasks = load i64, ptr %tasks_at
  call void %function(ptr %data, i64 %task, i64 %tasks)
  store atomic i32 0, ptr %slot release, align 4
  %before = atomicrmw sub ptr %remaining, i32 1 acq_rel
  %is_last = icmp eq i32 %before, -2147483647 ; one left and the caller asleep
  br i1 %is_last, label %finish, label %idle
finish:
  call void @wake(ptr %remaining)
  br label %idle
stop:
  store atomic i32 0, ptr %slot release, align 4
  ret ptr null
}

; Starts workers until there are %wanted, with all signals blocked: they are the main thread's.
define internal i32 @grow(ptr %pool, i32 %wanted) noinline {
entry:
  %all = alloca [16 x i64]
  %old = alloca [16 x i64]
  %1 = call i32 @sigfillset(ptr %all)
  %2 = call i32 @pthread_sigmask(i32 2, ptr %all, ptr %old)
  %workers_at = getelementptr %Pool, ptr %pool, i32 0, i32 1
  %have = load i32, ptr %workers_at
  br label %next
next:
  %k = phi i32 [ %have, %entry ], [ %more, %started ]
  %enough = icmp uge i32 %k, %wanted
  br i1 %enough, label %done, label %start
start:
  %slot = getelementptr %Pool, ptr %pool, i32 0, i32 12, i32 %k
  store i32 0, ptr %slot
  %pool_at = getelementptr %Slot, ptr %slot, i32 0, i32 4
  store ptr %pool, ptr %pool_at
  %thread_at = getelementptr %Slot, ptr %slot, i32 0, i32 5
  %failed = call i32 @pthread_create(ptr %thread_at, ptr null, ptr @worker, ptr %slot)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %started, label %done
started:
  %more = add i32 %k, 1
  br label %next
done:
  store i32 %k, ptr %workers_at
  %3 = call i32 @pthread_sigmask(i32 2, ptr %old, ptr null)
  ret i32 %k
}

; Ends and joins the workers, unless tasks are running.
define void @tcsym_pool_stop(ptr %pool) {
entry:
  %claim = cmpxchg ptr %pool, i32 0, i32 1 acq_rel acquire
  %claimed = extractvalue { i32, i1 } %claim, 1
  br i1 %claimed, label %begin, label %end
begin:
  %workers_at = getelementptr %Pool, ptr %pool, i32 0, i32 1
  %workers = load i32, ptr %workers_at
  br label %next
next:
  %k = phi i32 [ %workers, %begin ], [ %last, %join ]
  %none = icmp eq i32 %k, 0
  br i1 %none, label %done, label %stop
stop:
  %last = sub i32 %k, 1
  %slot = getelementptr %Pool, ptr %pool, i32 0, i32 12, i32 %last
  %was = atomicrmw xchg ptr %slot, i32 3 acq_rel
  %asleep = icmp eq i32 %was, 2
  br i1 %asleep, label %rouse, label %join
rouse:
  call void @wake(ptr %slot)
  br label %join
join:
  %thread_at = getelementptr %Slot, ptr %slot, i32 0, i32 5
  %thread = load i64, ptr %thread_at
  %1 = call i32 @pthread_join(i64 %thread, ptr null)
  br label %next
done:
  store i32 0, ptr %workers_at
  store atomic i32 0, ptr %pool release, align 4
  br label %end
end:
  ret void
}

; ---- parallel_for

define internal void @run_serially(ptr %function, ptr %data, i64 %first, i64 %step, i64 %n_tasks) {
entry:
  br label %test
test:
  %task = phi i64 [ %first, %entry ], [ %next, %body ]
  %more = icmp slt i64 %task, %n_tasks
  br i1 %more, label %body, label %done
body:
  call void %function(ptr %data, i64 %task, i64 %n_tasks)
  %next = add i64 %task, %step
  br label %test
done:
  ret void
}

; Cycles for which the threads wait spinning after a loop.
define internal i64 @window(ptr %pool) {
  %own = call i64 @spin_cycles(ptr %pool)
  %patient = icmp eq i64 %own, 0
  %gomp_at = getelementptr %Pool, ptr %pool, i32 0, i32 4
  %gomp = load ptr, ptr %gomp_at
  %has_gomp = icmp ne ptr %gomp, null
  %gomp_spin_at = getelementptr %Pool, ptr %pool, i32 0, i32 3
  %gomp_spin32 = load i32, ptr %gomp_spin_at
  %gomp_spin = zext i32 %gomp_spin32 to i64
  %spin = select i1 %has_gomp, i64 %gomp_spin, i64 %own
  %cycles = select i1 %patient, i64 0, i64 %spin
  ret i64 %cycles
}

; Notes the end of a loop. %woken: threads ran it, so that they are spinning now.
define internal void @note_end(ptr %pool, i1 %woken) {
entry:
  %now = call i64 @llvm.readcyclecounter()
  %window = call i64 @window(ptr %pool)
  %spared = lshr i64 %window, 3 ; they began to wait a little earlier
  %left = sub i64 %window, %spared
  %until = add i64 %now, %left
  %soon_at = getelementptr %Pool, ptr %pool, i32 0, i32 8
  store i64 %until, ptr %soon_at
  br i1 %woken, label %warm, label %done
warm:
  %warm_at = getelementptr %Pool, ptr %pool, i32 0, i32 7
  store i64 %until, ptr %warm_at
  br label %done
done:
  ret void
}

; How many of %n_tasks pay for a loop that takes %cycles. Spinning threads start at once. Waking
; sleeping ones takes longer than a short loop, but it is the first of many such loops perhaps: they
; are woken when the loops since the last pause have missed as much as waking costs. A single long
; loop has missed that much at once.
define internal i64 @useful_tasks(ptr %pool, i64 %n_tasks, i64 %cycles) {
entry:
  %gomp_at = getelementptr %Pool, ptr %pool, i32 0, i32 4
  %gomp = load ptr, ptr %gomp_at
  %has_gomp = icmp ne ptr %gomp, null
  %paying = lshr i64 %cycles, 13 ; OpenMP takes about 2 microseconds to start and join threads
  %most = select i1 %has_gomp, i64 %paying, i64 %n_tasks
  %fewer = call i64 @llvm.umin.i64(i64 %n_tasks, i64 %most)
  %single = icmp ule i64 %fewer, 1
  br i1 %single, label %one, label %several
one:
  ret i64 1
several:
  %now = call i64 @llvm.readcyclecounter()
  %warm_at = getelementptr %Pool, ptr %pool, i32 0, i32 7
  %warm = load i64, ptr %warm_at
  %is_warm = icmp ult i64 %now, %warm
  br i1 %is_warm, label %all, label %cold
all:
  ret i64 %fewer
cold:
  %soon_at = getelementptr %Pool, ptr %pool, i32 0, i32 8
  %soon = load i64, ptr %soon_at
  %is_soon = icmp ult i64 %now, %soon
  %missed_at = getelementptr %Pool, ptr %pool, i32 0, i32 9
  %missed = load i64, ptr %missed_at
  %before = select i1 %is_soon, i64 %missed, i64 0
  %share = udiv i64 %cycles, %fewer
  %gain = sub i64 %cycles, %share
  %sum = add i64 %before, %gain
  %others = sub i64 %fewer, 1
  %calls = mul i64 %others, 20000 ; the system's call for each
  %own = add i64 %calls, 40000 ; until the last one begins: 20 microseconds and more
  %waking = select i1 %has_gomp, i64 100000, i64 %own
  %pays = icmp uge i64 %sum, %waking
  %kept = select i1 %pays, i64 0, i64 %sum
  store i64 %kept, ptr %missed_at
  %tasks = select i1 %pays, i64 %fewer, i64 1
  ret i64 %tasks
}

; Runs at most %n_tasks tasks, as many as a loop of %work sixteenths of a cycle is worth, every one
; on a thread of its own where there are enough, else several on the caller's.
define void @tcsym_parallel_for(ptr %pool, ptr %function, ptr %data, i64 %n_tasks, i64 %work) {
entry:
  %single = icmp sle i64 %n_tasks, 1
  br i1 %single, label %alone, label %claim
claim:
  %try = cmpxchg ptr %pool, i32 0, i32 1 acq_rel acquire
  %claimed = extractvalue { i32, i1 } %try, 1
  br i1 %claimed, label %decide, label %alone
alone:
  %one = call i64 @llvm.smin.i64(i64 %n_tasks, i64 1)
  call void @run_serially(ptr %function, ptr %data, i64 0, i64 1, i64 %one)
  ret void
decide:
  %cycles = lshr i64 %work, 4
  %tasks = call i64 @useful_tasks(ptr %pool, i64 %n_tasks, i64 %cycles)
  %several = icmp ugt i64 %tasks, 1
  br i1 %several, label %choose, label %decline
decline:
  store atomic i32 0, ptr %pool release, align 4
  call void %function(ptr %data, i64 0, i64 1)
  call void @note_end(ptr %pool, i1 false)
  ret void
choose:
  %gomp_at = getelementptr %Pool, ptr %pool, i32 0, i32 4
  %gomp = load ptr, ptr %gomp_at
  %has_gomp = icmp ne ptr %gomp, null
  br i1 %has_gomp, label %openmp, label %own
openmp:
  call void @run_openmp(ptr %pool, ptr %function, ptr %data, i64 %tasks)
  br label %done
own:
  call void @run_own(ptr %pool, ptr %function, ptr %data, i64 %tasks)
  br label %done
done:
  call void @note_end(ptr %pool, i1 true)
  store atomic i32 0, ptr %pool release, align 4
  ret void
}

define internal void @run_own(ptr %pool, ptr %function, ptr %data, i64 %n_tasks) {
entry:
  %others = sub i64 %n_tasks, 1
  %wanted64 = call i64 @llvm.umin.i64(i64 %others, i64 255)
  %wanted = trunc i64 %wanted64 to i32
  %workers_at = getelementptr %Pool, ptr %pool, i32 0, i32 1
  %have = load i32, ptr %workers_at
  %few = icmp ult i32 %have, %wanted
  br i1 %few, label %more, label %ready
more:
  %grown = call i32 @grow(ptr %pool, i32 %wanted)
  br label %ready
ready:
  %now = phi i32 [ %have, %entry ], [ %grown, %more ]
  %posted = call i32 @llvm.umin.i32(i32 %now, i32 %wanted)
  %remaining = getelementptr %Pool, ptr %pool, i32 0, i32 10
  store atomic i32 %posted, ptr %remaining release, align 4
  br label %next
next:
  %k = phi i32 [ 0, %ready ], [ %task, %sent ]
  %all = icmp uge i32 %k, %posted
  br i1 %all, label %mine, label %post
post:
  %task = add i32 %k, 1
  %slot = getelementptr %Pool, ptr %pool, i32 0, i32 12, i32 %k
  %task_at = getelementptr %Slot, ptr %slot, i32 0, i32 1
  store i32 %task, ptr %task_at
  %function_at = getelementptr %Slot, ptr %slot, i32 0, i32 2
  store ptr %function, ptr %function_at
  %data_at = getelementptr %Slot, ptr %slot, i32 0, i32 3
  store ptr %data, ptr %data_at
  %tasks_at = getelementptr %Slot, ptr %slot, i32 0, i32 6
  store i64 %n_tasks, ptr %tasks_at
  %was = atomicrmw xchg ptr %slot, i32 1 acq_rel
  %asleep = icmp eq i32 %was, 2
  br i1 %asleep, label %rouse, label %sent
rouse:
  call void @wake(ptr %slot)
  br label %sent
sent:
  br label %next
mine:
  call void %function(ptr %data, i64 0, i64 %n_tasks)
  %posted64 = zext i32 %posted to i64
  %rest = add i64 %posted64, 1
  call void @run_serially(ptr %function, ptr %data, i64 %rest, i64 1, i64 %n_tasks)
  call void @take_back(ptr %pool, ptr %function, ptr %data, i32 %posted, i64 %n_tasks)
  call void @join(ptr %pool, ptr %remaining)
  ret void
}

; Runs the posted tasks that no worker has begun: waking may take longer than they do.
define internal void @take_back(ptr %pool, ptr %function, ptr %data, i32 %posted,
                                i64 %n_tasks) {
entry:
  %remaining = getelementptr %Pool, ptr %pool, i32 0, i32 10
  br label %next
next:
  %task = phi i32 [ %posted, %entry ], [ %k, %run ], [ %k, %test ]
  %none = icmp eq i32 %task, 0
  br i1 %none, label %done, label %test
test:
  %k = sub i32 %task, 1
  %slot = getelementptr %Pool, ptr %pool, i32 0, i32 12, i32 %k
  %try = cmpxchg ptr %slot, i32 1, i32 0 acq_rel acquire
  %taken = extractvalue { i32, i1 } %try, 1
  br i1 %taken, label %run, label %next
run:
  %task64 = zext i32 %task to i64
  call void %function(ptr %data, i64 %task64, i64 %n_tasks)
  %1 = atomicrmw sub ptr %remaining, i32 1 acq_rel
  br label %next
done:
  ret void
}

; Waits until no task remains: spins, then sleeps.
define internal void @join(ptr %pool, ptr %remaining) {
entry:
  %start = call i64 @llvm.readcyclecounter()
  %limit = call i64 @spin_cycles(ptr %pool)
  br label %spin
spin:
  %left = load atomic i32, ptr %remaining acquire, align 4
  %none = icmp eq i32 %left, 0
  br i1 %none, label %done, label %wait
wait:
  call void @llvm.x86.sse2.pause()
  %now = call i64 @llvm.readcyclecounter()
  %spent = sub i64 %now, %start
  %patience = icmp ult i64 %spent, %limit
  br i1 %patience, label %spin, label %doze
doze:
  %before = atomicrmw or ptr %remaining, i32 -2147483648 acq_rel
  br label %test
test:
  %seen = phi i32 [ %before, %doze ], [ %after, %sleep ]
  %count = and i32 %seen, 2147483647
  %finished = icmp eq i32 %count, 0
  br i1 %finished, label %done, label %sleep
sleep:
  %flagged = or i32 %seen, -2147483648
  call void @sleep_while(ptr %remaining, i32 %flagged)
  %after = load atomic i32, ptr %remaining acquire, align 4
  br label %test
done:
  ret void
}

define internal void @run_openmp(ptr %pool, ptr %function, ptr %data, i64 %n_tasks) {
  %team = alloca %Team
  store ptr %function, ptr %team
  %data_at = getelementptr %Team, ptr %team, i32 0, i32 1
  store ptr %data, ptr %data_at
  %tasks_at = getelementptr %Team, ptr %team, i32 0, i32 2
  store i64 %n_tasks, ptr %tasks_at
  %pool_at = getelementptr %Team, ptr %team, i32 0, i32 3
  store ptr %pool, ptr %pool_at
  %gomp_at = getelementptr %Pool, ptr %pool, i32 0, i32 4
  %gomp = load ptr, ptr %gomp_at
  %threads = trunc i64 %n_tasks to i32
  call void %gomp(ptr @openmp_body, ptr %team, i32 %threads, i32 0)
  ret void
}

; A team may be smaller than asked for: each of its threads takes every num_threads-th task.
define internal void @openmp_body(ptr %team) {
  %function = load ptr, ptr %team
  %data_at = getelementptr %Team, ptr %team, i32 0, i32 1
  %data = load ptr, ptr %data_at
  %tasks_at = getelementptr %Team, ptr %team, i32 0, i32 2
  %n_tasks = load i64, ptr %tasks_at
  %pool_at = getelementptr %Team, ptr %team, i32 0, i32 3
  %pool = load ptr, ptr %pool_at
  %thread_num_at = getelementptr %Pool, ptr %pool, i32 0, i32 5
  %thread_num = load ptr, ptr %thread_num_at
  %num_threads_at = getelementptr %Pool, ptr %pool, i32 0, i32 6
  %num_threads = load ptr, ptr %num_threads_at
  %first32 = call i32 %thread_num()
  %step32 = call i32 %num_threads()
  %first = zext i32 %first32 to i64
  %step = zext i32 %step32 to i64
  call void @run_serially(ptr %function, ptr %data, i64 %first, i64 %step, i64 %n_tasks)
  ret void
}

declare i32 @llvm.umin.i32(i32, i32)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)

; ---- arenas and launch

; Makes a block hold %bytes, with a quarter to spare so that slowly growing sizes settle. The old
; content is lost. From 4 MiB on, huge pages are asked for. False: out of memory.
define internal i1 @reserve(ptr %block, i64 %bytes) {
entry:
  %capacity_at = getelementptr %Block, ptr %block, i32 0, i32 1
  %capacity = load i64, ptr %capacity_at
  %fits = icmp uge i64 %capacity, %bytes
  br i1 %fits, label %yes, label %allocate
yes:
  ret i1 true
allocate:
  %old = load ptr, ptr %block
  call void @free(ptr %old)
  %quarter = lshr i64 %bytes, 2
  %wanted = add i64 %bytes, %quarter
  %large = icmp uge i64 %wanted, 4194304
  %unit = select i1 %large, i64 2097152, i64 64
  %below = sub i64 %unit, 1
  %padded = add i64 %wanted, %below
  %mask = xor i64 %below, -1
  %size = and i64 %padded, %mask
  %new = call ptr @aligned_alloc(i64 %unit, i64 %size)
  %failed = icmp eq ptr %new, null
  %held = select i1 %failed, i64 0, i64 %size
  store ptr %new, ptr %block
  store i64 %held, ptr %capacity_at
  br i1 %failed, label %no, label %advise
advise:
  br i1 %large, label %ask, label %good
ask:
  %1 = call i32 @madvise(ptr %new, i64 %size, i32 14)
  br label %good
good:
  ret i1 true
no:
  ret i1 false
}

define void @tcsym_arena_free(ptr %arena) {
  %shared_at = getelementptr %Arena, ptr %arena, i32 0, i32 1
  %shared = load ptr, ptr %shared_at
  call void @free(ptr %shared)
  %private_at = getelementptr %Arena, ptr %arena, i32 0, i32 2
  %private = load ptr, ptr %private_at
  call void @free(ptr %private)
  call void @llvm.memset.p0.i64(ptr %arena, i8 0, i64 40, i1 false)
  ret void
}

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; Stands for a task whose code is not made yet: the kernel's result is -3. The data's first word is
; where that is noted (tcsym/codegen/launch.py).
define void @tcsym_missing_task(ptr %data, ptr %arena, i64 %lower, i64 %upper) {
  %error = load ptr, ptr %data
  store i32 -3, ptr %error
  ret void
}

; Calls a kernel with scratch memory from the arena. Its result, or -1: the arena is in use,
; -2: out of memory. %private_bytes is a multiple of 64.
define i32 @tcsym_launch(ptr %kernel, ptr %buffers, ptr %sizes, ptr %arena, i64 %shared_bytes,
                         i64 %private_bytes, i64 %threads, ptr %pool) {
entry:
  %context = alloca %Context
  store ptr @tcsym_parallel_for, ptr %context
  %pool_at = getelementptr %Context, ptr %context, i32 0, i32 1
  store ptr %pool, ptr %pool_at
  %threads_at = getelementptr %Context, ptr %context, i32 0, i32 2
  store i64 %threads, ptr %threads_at
  %shared_at = getelementptr %Context, ptr %context, i32 0, i32 3
  %private_at = getelementptr %Context, ptr %context, i32 0, i32 4
  %private_bytes_at = getelementptr %Context, ptr %context, i32 0, i32 5
  store i64 %private_bytes, ptr %private_bytes_at
  %any = or i64 %shared_bytes, %private_bytes
  %none = icmp eq i64 %any, 0
  br i1 %none, label %bare, label %claim
bare:
  store ptr null, ptr %shared_at
  store ptr null, ptr %private_at
  %bare_result = call i32 %kernel(ptr %buffers, ptr %sizes, ptr %context)
  ret i32 %bare_result
claim:
  %try = cmpxchg ptr %arena, i64 0, i64 1 acq_rel acquire
  %claimed = extractvalue { i64, i1 } %try, 1
  br i1 %claimed, label %fill, label %busy
busy:
  ret i32 -1
fill:
  %shared_block = getelementptr %Arena, ptr %arena, i32 0, i32 1
  %private_block = getelementptr %Arena, ptr %arena, i32 0, i32 2
  %total = mul i64 %private_bytes, %threads
  %got_shared = call i1 @reserve(ptr %shared_block, i64 %shared_bytes)
  %got_private = call i1 @reserve(ptr %private_block, i64 %total)
  %got = and i1 %got_shared, %got_private
  br i1 %got, label %run, label %full
full:
  store atomic i64 0, ptr %arena release, align 8
  ret i32 -2
run:
  %shared = load ptr, ptr %shared_block
  store ptr %shared, ptr %shared_at
  %private = load ptr, ptr %private_block
  store ptr %private, ptr %private_at
  %result = call i32 %kernel(ptr %buffers, ptr %sizes, ptr %context)
  store atomic i64 0, ptr %arena release, align 8
  ret i32 %result
}
