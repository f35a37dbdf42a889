// Marks functions that the CPU kernels, the CUDA kernels and their emulation share.
#pragma once

#if defined(__CUDACC__)
#define RK_HOST_DEVICE __host__ __device__
#else
#define RK_HOST_DEVICE
#endif
