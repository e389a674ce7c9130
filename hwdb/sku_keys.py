"""The keys a SKU file may hold, their units in their names, and the values that could possibly be true."""

from __future__ import annotations

SECTIONS = {
    *("name", "title", "vendor", "generation", "notes", "names", "figures"),
    *("peak_flops_per_s", "flops_per_clock_per_sm", "unproven", "ceilings", "sources"),
}
TEXTS = {"architecture", "compute_capability", "hbm_type", "pcie", "fp8_format", "same_dies"}
RANGES: dict[str, tuple[float, float]] = {  # what a data-centre GPU of 2020-2030 could possibly be
    "dies": (1, 64),
    "sm_count": (1, 4096),
    "clock_boost_hz": (5e8, 5e9),
    "clock_tensor_hz": (5e8, 5e9),
    "tensor_cores_per_sm": (1, 64),
    "exp_per_clock_per_sm": (1, 1024),
    "threads_per_warp": (1, 128),
    "max_threads_per_sm": (128, 16384),
    "max_blocks_per_sm": (1, 1024),
    "register_file_per_sm_bytes": (2**10, 2**24),
    "shared_memory_per_sm_bytes": (2**10, 2**24),
    "shared_memory_per_block_bytes": (2**10, 2**24),
    "shared_memory_bytes_per_clock_per_sm": (1, 4096),
    "tensor_memory_per_sm_bytes": (2**10, 2**24),
    "l2_bytes": (2**20, 2**33),
    "l2_partitions": (1, 64),
    "l2_bytes_per_clock": (64, 10**6),
    "last_level_cache_bytes": (2**20, 2**36),
    "last_level_cache_bytes_per_s": (1e11, 1e15),
    "hbm_bytes": (2**30, 2**41),  # 2 TiB
    "device_memory_bytes": (2**30, 2**41),
    "hbm_bytes_per_s": (1e11, 1e14),  # 100 TB/s
    "link_bytes_per_s": (1e9, 1e14),
    "link_pair_bytes_per_s": (1e9, 1e14),
    "die_to_die_bytes_per_s": (1e9, 1e14),
    "cpu_link_bytes_per_s": (1e9, 1e14),
    "pcie_bytes_per_s": (1e9, 1e13),
    "tdp_w": (50, 5000),
}
REQUIRED = {
    *("architecture", "compute_capability", "sm_count", "clock_tensor_hz", "exp_per_clock_per_sm", "l2_bytes"),
    *("hbm_type", "hbm_bytes", "hbm_bytes_per_s", "link_bytes_per_s", "pcie_bytes_per_s", "tdp_w"),
}
RATES = {
    *("fp64", "fp64_matrix", "fp32", "tf32", "bf16", "fp16", "int8", "fp8", "mxfp8", "mxfp6", "mxfp4", "nvfp4"),
}
CEILINGS = {
    *(f"gemm_{rate}_flops_per_s" for rate in RATES),
    *(f"gemm_{rate}_sustained_flops_per_s" for rate in RATES),
    *("hbm_bytes_per_s", "l2_bytes_per_s", "all_reduce_bus_bytes_per_s"),
    *("smallest_kernel_s", "collective_base_s", "collective_hop_s"),
}
