"""Strategies on CUDA: the same algorithms, with rows and trees distributed to threads."""

from hbtvm.strategies.cuda.bitvector import CudaBitvector
from hbtvm.strategies.cuda.gemm import CudaGemm
from hbtvm.strategies.cuda.linear import CudaLinearSum
from hbtvm.strategies.cuda.network import CudaFused
from hbtvm.strategies.cuda.oblivious import CudaOblivious
from hbtvm.strategies.cuda.perfect import CudaPerfectTreeTraversal
from hbtvm.strategies.cuda.ranked import CudaRankedTraversal
from hbtvm.strategies.cuda.reasons import CudaQuadrature
from hbtvm.strategies.cuda.traversal import CudaTreeTraversal

__all__ = [
    "CudaBitvector",
    "CudaFused",
    "CudaGemm",
    "CudaLinearSum",
    "CudaOblivious",
    "CudaPerfectTreeTraversal",
    "CudaQuadrature",
    "CudaRankedTraversal",
    "CudaTreeTraversal",
]
