"""A hint to the processor: an element of an array will be needed soon."""

# mypy: disable-error-code="call-overload,no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic
def fetch_soon(typing_context: Any, array: Any, row: Any, column: Any) -> Any:
    """Sends for an element of a two-dimensional array, to write to it; row and column may lie outside of the array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = cgutils.create_struct_proxy(signature.args[0])(context, builder, arguments[0])
        strides = cgutils.unpack_tuple(builder, view.strides)
        word, number = ir.IntType(64), ir.IntType(32)
        at = builder.add(builder.mul(arguments[1], strides[0]), builder.mul(arguments[2], strides[1]))
        pointer = builder.inttoptr(builder.add(builder.ptrtoint(view.data, word), at), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], kind)
        builder.call(prefetch, [pointer, *(ir.Constant(number, n) for n in (1, 3, 1))])  # to write, keep, data
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), generate
