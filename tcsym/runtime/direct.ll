; tp_call of kernels, modules and executables: hands the call to the object in the first slot.
; Loaded by direct.py, which checks that objects and types have their fields where they are read here.

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-unknown-linux-gnu"

@tcsym_slot_call = external global ptr ; what the types had: calls the `__call__` written in Python

declare ptr @PyObject_Call(ptr, ptr, ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)

define ptr @tcsym_call(ptr %object, ptr %args, ptr %kwargs) {
entry:
  br label %next
next:
  %self = phi ptr [ %object, %entry ], [ %target, %look ]
  %target_at = getelementptr i8, ptr %self, i64 16
  %target = load ptr, ptr %target_at
  %unset = icmp eq ptr %target, null
  br i1 %unset, label %plain, label %look
look: ; one of us stands for another: a module for its only kernel
  %type_at = getelementptr i8, ptr %target, i64 8
  %type = load ptr, ptr %type_at
  %call_at = getelementptr i8, ptr %type, i64 128
  %call = load ptr, ptr %call_at
  %ours = icmp eq ptr %call, @tcsym_call
  br i1 %ours, label %next, label %go
go: ; it may be replaced meanwhile, by another thread
  call void @Py_IncRef(ptr %target)
  %result = call ptr @PyObject_Call(ptr %target, ptr %args, ptr %kwargs)
  call void @Py_DecRef(ptr %target)
  ret ptr %result
plain:
  %slot_call = load ptr, ptr @tcsym_slot_call
  %answer = call ptr %slot_call(ptr %self, ptr %args, ptr %kwargs)
  ret ptr %answer
}
