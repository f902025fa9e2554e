; What call entries share: keywords, scalars, memory of arrays given as `out=`. Loaded by fastcall.py.
; Strides are multiplied by %unit to give bytes. A span is { lowest address, one past the highest }.

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-unknown-linux-gnu"

@PyFloat_Type = external global i8
@PyLong_Type = external global i8
@_Py_NoneStruct = external global i8
@_Py_TrueStruct = external global i8
@_Py_FalseStruct = external global i8

declare i64 @PyTuple_Size(ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare ptr @PyObject_CallNoArgs(ptr)
declare void @Py_DecRef(ptr)
declare void @PyErr_Clear()
declare double @PyFloat_AsDouble(ptr)
declare i64 @PyLong_AsLongAndOverflow(ptr, ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.abs.i64(i64, i1)
declare double @llvm.fabs.f64(double)
declare float @llvm.fabs.f32(float)

; Puts arguments in order: %given gets one object for each of %n inputs, then null or an object for
; each of the three options. %names are the same, interned. False: not exactly what a call needs.
define i1 @tcsym_match(ptr %args, i64 %nargs, ptr %kwnames, ptr %names, i64 %n, ptr %given) {
entry:
  %total = add i64 %n, 3
  %surplus = icmp sgt i64 %nargs, %n
  br i1 %surplus, label %no, label %clear
clear:
  %bytes = shl i64 %total, 3
  call void @llvm.memset.p0.i64(ptr %given, i8 0, i64 %bytes, i1 false)
  %positional = shl i64 %nargs, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %given, ptr %args, i64 %positional, i1 false)
  %unnamed = icmp eq ptr %kwnames, null
  br i1 %unnamed, label %complete, label %count
count:
  %n_names = call i64 @PyTuple_Size(ptr %kwnames)
  br label %next
next:
  %k = phi i64 [ 0, %count ], [ %later, %store ]
  %more = icmp slt i64 %k, %n_names
  br i1 %more, label %name, label %complete
name:
  %this = call ptr @PyTuple_GetItem(ptr %kwnames, i64 %k)
  %from = add i64 %nargs, %k
  %value_at = getelementptr ptr, ptr %args, i64 %from
  %value = load ptr, ptr %value_at
  br label %search
search: ; from the end: options come before inputs of the same name
  %after = phi i64 [ %total, %name ], [ %j, %look ]
  %unknown = icmp eq i64 %after, 0
  br i1 %unknown, label %no, label %look
look:
  %j = sub i64 %after, 1
  %known_at = getelementptr ptr, ptr %names, i64 %j
  %known = load ptr, ptr %known_at
  %same = icmp eq ptr %known, %this
  br i1 %same, label %found, label %search
found:
  %place = getelementptr ptr, ptr %given, i64 %j
  %old = load ptr, ptr %place
  %free = icmp eq ptr %old, null
  br i1 %free, label %store, label %no
store:
  store ptr %value, ptr %place
  %later = add i64 %k, 1
  br label %next
complete:
  %i = phi i64 [ 0, %clear ], [ 0, %next ], [ %after_i, %there ]
  %all = icmp sge i64 %i, %n
  br i1 %all, label %options, label %test
test:
  %input_at = getelementptr ptr, ptr %given, i64 %i
  %input = load ptr, ptr %input_at
  %missing = icmp eq ptr %input, null
  br i1 %missing, label %no, label %there
there:
  %after_i = add i64 %i, 1
  br label %complete
options:
  %o = phi i64 [ %n, %complete ], [ %after_o, %options_next ]
  %done = icmp sge i64 %o, %total
  br i1 %done, label %yes, label %option
option:
  %option_at = getelementptr ptr, ptr %given, i64 %o
  %option_value = load ptr, ptr %option_at
  %is_none = icmp eq ptr %option_value, @_Py_NoneStruct
  br i1 %is_none, label %omit, label %options_next
omit:
  store ptr null, ptr %option_at
  br label %options_next
options_next:
  %after_o = add i64 %o, 1
  br label %options
yes:
  ret i1 true
no:
  ret i1 false
}

; Value of an `int` in [%lowest, %highest], else a value below %lowest.
define i64 @tcsym_integer(ptr %x, i64 %lowest, i64 %highest) {
entry:
  %overflow = alloca i32
  %type_at = getelementptr i8, ptr %x, i64 8
  %type = load ptr, ptr %type_at
  %is_int = icmp eq ptr %type, @PyLong_Type
  br i1 %is_int, label %read, label %no
read:
  %value = call i64 @PyLong_AsLongAndOverflow(ptr %x, ptr %overflow)
  %overflows = load i32, ptr %overflow
  %fits = icmp eq i32 %overflows, 0
  %low = icmp sge i64 %value, %lowest
  %high = icmp sle i64 %value, %highest
  %inside = and i1 %low, %high
  %good = and i1 %fits, %inside
  br i1 %good, label %yes, label %no
yes:
  ret i64 %value
no:
  %below = sub i64 %lowest, 1
  ret i64 %below
}

; Stores a Python number, or a numpy scalar of the very type, in %slot as an element.
; %kind: 1, 2, 4, 8 bytes of an integer in [%lowest, %highest]; 32, 64: float with that many bits, of
; which integers in that range are; 0: numpy scalars only. False: some other object, or it may not fit.
define i1 @tcsym_scalar(ptr %x, ptr %scalar_type, i64 %bytes, i32 %kind, i64 %lowest, i64 %highest,
                        ptr %slot) {
entry:
  %type_at = getelementptr i8, ptr %x, i64 8
  %type = load ptr, ptr %type_at
  %same = icmp eq ptr %type, %scalar_type
  br i1 %same, label %copy, label %other
copy: ; the value lies behind the object's header
  %value_at = getelementptr i8, ptr %x, i64 16
  call void @llvm.memcpy.p0.p0.i64(ptr %slot, ptr %value_at, i64 %bytes, i1 false)
  ret i1 true
other:
  %is_float = icmp eq ptr %type, @PyFloat_Type
  br i1 %is_float, label %float, label %whole
float:
  %number = call double @PyFloat_AsDouble(ptr %x)
  switch i32 %kind, label %no [ i32 64, label %double
                                i32 32, label %single ]
double:
  store double %number, ptr %slot
  ret i1 true
single:
  %rounded = fptrunc double %number to float
  store float %rounded, ptr %slot
  %size = call double @llvm.fabs.f64(double %number)
  %rounded_size = call float @llvm.fabs.f32(float %rounded)
  %finite = fcmp one double %size, 0x7FF0000000000000
  %overflowed = fcmp oeq float %rounded_size, 0x7FF0000000000000
  %lost = and i1 %finite, %overflowed
  %kept = xor i1 %lost, true
  ret i1 %kept
whole:
  %is_true = icmp eq ptr %x, @_Py_TrueStruct
  %is_false = icmp eq ptr %x, @_Py_FalseStruct
  %is_bool = or i1 %is_true, %is_false
  br i1 %is_bool, label %truth, label %integer
truth:
  %bit = zext i1 %is_true to i64
  br label %have
integer:
  %value = call i64 @tcsym_integer(ptr %x, i64 %lowest, i64 %highest)
  %inside = icmp sge i64 %value, %lowest
  br i1 %inside, label %have, label %no
have:
  %whole_value = phi i64 [ %bit, %truth ], [ %value, %integer ]
  switch i32 %kind, label %no [ i32 1, label %int1
                                i32 2, label %int2
                                i32 4, label %int4
                                i32 8, label %int8
                                i32 32, label %as_single
                                i32 64, label %as_double ]
int1:
  %value1 = trunc i64 %whole_value to i8
  store i8 %value1, ptr %slot
  ret i1 true
int2:
  %value2 = trunc i64 %whole_value to i16
  store i16 %value2, ptr %slot
  ret i1 true
int4:
  %value4 = trunc i64 %whole_value to i32
  store i32 %value4, ptr %slot
  ret i1 true
int8:
  store i64 %whole_value, ptr %slot
  ret i1 true
as_single:
  %value_single = sitofp i64 %whole_value to float
  store float %value_single, ptr %slot
  ret i1 true
as_double:
  %value_double = sitofp i64 %whole_value to double
  store double %value_double, ptr %slot
  ret i1 true
no:
  ret i1 false
}

; ---- memory of arrays

define void @tcsym_span(ptr %data, i64 %rank, ptr %extents, ptr %strides, i64 %unit, i64 %bytes,
                        ptr %span) {
entry:
  %start = ptrtoint ptr %data to i64
  %behind = add i64 %start, %bytes
  %high_at = getelementptr i64, ptr %span, i64 1
  br label %next
next:
  %d = phi i64 [ 0, %entry ], [ %after, %there ]
  %low = phi i64 [ %start, %entry ], [ %new_low, %there ]
  %high = phi i64 [ %behind, %entry ], [ %new_high, %there ]
  %more = icmp slt i64 %d, %rank
  br i1 %more, label %look, label %done
look:
  %extent_at = getelementptr i64, ptr %extents, i64 %d
  %extent = load i64, ptr %extent_at
  %empty = icmp eq i64 %extent, 0
  br i1 %empty, label %nothing, label %there
there:
  %stride_at = getelementptr i64, ptr %strides, i64 %d
  %stride = load i64, ptr %stride_at
  %stride_bytes = mul i64 %stride, %unit
  %last = sub i64 %extent, 1
  %way = mul i64 %last, %stride_bytes
  %down = icmp slt i64 %way, 0
  %low_way = select i1 %down, i64 %way, i64 0
  %high_way = sub i64 %way, %low_way
  %new_low = add i64 %low, %low_way
  %new_high = add i64 %high, %high_way
  %after = add i64 %d, 1
  br label %next
nothing:
  store i64 0, ptr %span
  store i64 0, ptr %high_at
  ret void
done:
  store i64 %low, ptr %span
  store i64 %high, ptr %high_at
  ret void
}

; True if the span number %n overlaps none of those before it.
define i1 @tcsym_is_apart(ptr %spans, i64 %n) {
entry:
  %span = getelementptr { i64, i64 }, ptr %spans, i64 %n
  %low = load i64, ptr %span
  %high_at = getelementptr i64, ptr %span, i64 1
  %high = load i64, ptr %high_at
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %after, %look ]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %look, label %yes
look:
  %other = getelementptr { i64, i64 }, ptr %spans, i64 %k
  %other_low = load i64, ptr %other
  %other_high_at = getelementptr i64, ptr %other, i64 1
  %other_high = load i64, ptr %other_high_at
  %below = icmp ule i64 %high, %other_low
  %above = icmp ule i64 %other_high, %low
  %apart = or i1 %below, %above
  %after = add i64 %k, 1
  br i1 %apart, label %next, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; True if no two elements share a byte for sure: each stride is longer than all that lies within it.
define i1 @tcsym_is_nested(i64 %rank, ptr %extents, ptr %strides, i64 %unit, i64 %bytes) {
entry:
  br label %next
next:
  %d = phi i64 [ 0, %entry ], [ %after, %good ]
  %more = icmp slt i64 %d, %rank
  br i1 %more, label %look, label %yes
look:
  %after = add i64 %d, 1
  %extent_at = getelementptr i64, ptr %extents, i64 %d
  %extent = load i64, ptr %extent_at
  %single = icmp sle i64 %extent, 1
  br i1 %single, label %good, label %measure
measure:
  %stride_at = getelementptr i64, ptr %strides, i64 %d
  %signed = load i64, ptr %stride_at
  %stride = call i64 @llvm.abs.i64(i64 %signed, i1 false)
  %length = mul i64 %stride, %unit
  br label %sum
sum:
  %e = phi i64 [ 0, %measure ], [ %after_e, %summed ]
  %within = phi i64 [ %bytes, %measure ], [ %total, %summed ]
  %left = icmp slt i64 %e, %rank
  br i1 %left, label %term, label %compare
term:
  %after_e = add i64 %e, 1
  %e_extent_at = getelementptr i64, ptr %extents, i64 %e
  %e_extent = load i64, ptr %e_extent_at
  %e_stride_at = getelementptr i64, ptr %strides, i64 %e
  %e_signed = load i64, ptr %e_stride_at
  %e_stride = call i64 @llvm.abs.i64(i64 %e_signed, i1 false)
  %other = icmp ne i64 %e, %d
  %inner = icmp ule i64 %e_stride, %stride
  %e_last = sub i64 %e_extent, 1
  %e_length = mul i64 %e_stride, %unit
  %e_way = mul i64 %e_last, %e_length
  %counts = and i1 %other, %inner
  %counted = select i1 %counts, i64 %e_way, i64 0
  br label %summed
summed:
  %total = add i64 %within, %counted
  br label %sum
compare:
  %enough = icmp sge i64 %length, %within
  br i1 %enough, label %good, label %no
good:
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
}

; True if the array is row-major without gaps; strides in elements.
define i1 @tcsym_is_dense(i64 %rank, ptr %extents, ptr %strides) {
entry:
  br label %next
next:
  %behind = phi i64 [ %rank, %entry ], [ %d, %there ]
  %expected = phi i64 [ 1, %entry ], [ %longer, %there ]
  %so_far = phi i1 [ true, %entry ], [ %still, %there ]
  %done = icmp eq i64 %behind, 0
  br i1 %done, label %end, label %look
look:
  %d = sub i64 %behind, 1
  %extent_at = getelementptr i64, ptr %extents, i64 %d
  %extent = load i64, ptr %extent_at
  %empty = icmp eq i64 %extent, 0
  br i1 %empty, label %yes, label %there
there:
  %stride_at = getelementptr i64, ptr %strides, i64 %d
  %stride = load i64, ptr %stride_at
  %as_expected = icmp eq i64 %stride, %expected
  %single = icmp eq i64 %extent, 1
  %fine = or i1 %as_expected, %single
  %still = and i1 %so_far, %fine
  %longer = mul i64 %expected, %extent
  br label %next
yes:
  ret i1 true
end:
  ret i1 %so_far
}

; A large array by the function in %blocks (%State of blocks.ll), loaded if need be; null: there is none.
define ptr @tcsym_large_array(ptr %blocks, i32 %rank, ptr %shape, ptr %descr, i64 %bytes) {
entry:
  %new_at = getelementptr ptr, ptr %blocks, i64 1
  %known = load ptr, ptr %new_at
  %is_known = icmp ne ptr %known, null
  br i1 %is_known, label %make, label %load
load:
  %loader_at = getelementptr ptr, ptr %blocks, i64 2
  %loader = load ptr, ptr %loader_at
  %answer = call ptr @PyObject_CallNoArgs(ptr %loader)
  %raised = icmp eq ptr %answer, null
  br i1 %raised, label %clear, label %look
clear:
  call void @PyErr_Clear()
  br label %none
look:
  call void @Py_DecRef(ptr %answer)
  %loaded = load ptr, ptr %new_at
  %is_loaded = icmp ne ptr %loaded, null
  br i1 %is_loaded, label %make, label %none
none:
  ret ptr null
make:
  %new = phi ptr [ %known, %entry ], [ %loaded, %look ]
  %array = call ptr %new(ptr %blocks, i32 %rank, ptr %shape, ptr %descr, i64 %bytes)
  ret ptr %array
}
