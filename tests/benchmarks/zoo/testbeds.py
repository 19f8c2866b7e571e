"""The machines of the papers as devices and links, with the figures from which ops are costed.

Peak rates are the vendors' data-sheet figures (single precision, GDDR/HBM bandwidth); link rates are what the
papers measured where they say so, else the data-sheet rate times the fraction that Li et al. ("Evaluating modern GPU
interconnect", TPDS 2019) reached. Every figure can be changed here: the zoo is drawn again from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepd.core.problem import Device, Link

GB = 1 << 30
# Fractions of the peak that kernels reach: convolutions, matrix products, and memory bandwidth of element-wise ops.
CONV_EFFICIENCY = 0.70
WINOGRAD_EFFICIENCY = 1.15  # of 3 x 3, stride 1: FLOPs by definition, so more than 1 is possible
MATMUL_EFFICIENCY = 0.80
MEMORY_EFFICIENCY = 0.75
NVLINK = 0.9 * 25e9  # bytes/s of one NVLink 2.0 brick in one direction
PCIE = 0.75 * 15.75e9  # PCIe 3.0 x16, peer to peer
DIRECT_LATENCY = 20e-6  # seconds: a send, a copy and a receive in the executor
NETWORK_LATENCY = 60e-6


@dataclass(frozen=True)
class Processor:
    """What the roofline needs: FLOP/s, bytes/s, memory, and seconds to launch a kernel."""

    model: str
    kind: str
    flops: float
    bandwidth: float
    memory_bytes: int
    launch_seconds: float = 5e-6


V100_16 = Processor("V100-SXM2-16GB", "GPU", 15.7e12, 900e9, 16 * GB)
V100_32 = Processor("V100-PCIe-32GB", "GPU", 14.0e12, 900e9, 32 * GB)
V100_SXM_32 = Processor("V100-SXM2-32GB", "GPU", 15.7e12, 900e9, 32 * GB)
P100 = Processor("P100-SXM2-16GB", "GPU", 10.6e12, 732e9, 16 * GB)
RTX_2080_TI = Processor("RTX-2080-Ti", "GPU", 13.45e12, 616e9, 11 * GB)
RTX_3060_TI = Processor("RTX-3060-Ti", "GPU", 16.2e12, 448e9, 8 * GB)
T4 = Processor("T4", "GPU", 8.1e12, 320e9, 16 * GB)
P4 = Processor("P4", "GPU", 5.5e12, 192e9, 8 * GB)
# 12 cores at 2.1 GHz, one AVX-512 FMA unit each (16 x 2 FLOP a cycle); six channels of DDR4-2400.
XEON_4116 = Processor("Xeon-Silver-4116", "CPU", 12 * 2.1e9 * 32, 115e9, 128 * GB, 1e-6)


@dataclass(frozen=True)
class Testbed:
    """Processors and the directed links between them."""

    name: str
    processors: tuple[Processor, ...]
    links: tuple[Link, ...]

    @property
    def devices(self) -> tuple[Device, ...]:
        """TensorFlow's names, numbered within each type."""
        names: list[str] = []
        for p in self.processors:
            number = sum(f"device:{p.kind}:" in name for name in names)
            names.append(f"/job:localhost/replica:0/task:0/device:{p.kind}:{number}")
        return tuple(Device(n, p.kind, p.memory_bytes) for n, p in zip(names, self.processors, strict=True))


# Bricks between the GPUs of a DGX-1V (hybrid cube mesh); 0: no direct link, data goes over a neighbour.
_DGX1_BRICKS = (
    (0, 1, 1, 2, 2, 0, 0, 0),
    (1, 0, 2, 1, 0, 2, 0, 0),
    (1, 2, 0, 2, 0, 0, 1, 0),
    (2, 1, 2, 0, 0, 0, 0, 1),
    (2, 0, 0, 0, 0, 1, 1, 2),
    (0, 2, 0, 0, 1, 0, 2, 1),
    (0, 0, 1, 0, 1, 2, 0, 2),
    (0, 0, 0, 1, 2, 1, 2, 0),
)


def fastt(gpus: int) -> Testbed:
    """FastT, section 6.2: 8 V100 with 16 GB and NVLink in one machine; the first `gpus` of them."""
    links = [
        Link(a, b, bricks * NVLINK, DIRECT_LATENCY)
        for a, row in enumerate(_DGX1_BRICKS[:gpus])
        for b, bricks in enumerate(row[:gpus])
        if bricks
    ]
    return Testbed(f"nvlink{gpus}", (V100_16,) * gpus, tuple(links))


def celeritas(gpus: int = 4) -> Testbed:
    """Celeritas, section 6.2.1: 4 V100 with 32 GB over the PCIe bus."""
    return Testbed(f"pcie{gpus}", (V100_32,) * gpus, _all_pairs(gpus, PCIE, DIRECT_LATENCY))


def pesto() -> Testbed:
    """Pesto, section 5.1: 2 V100 SXM2 with 16 GB, NVLink between them (2 bricks), PCIe to one Xeon Silver 4116."""
    gpu_links = [Link(0, 1, 2 * NVLINK, DIRECT_LATENCY), Link(1, 0, 2 * NVLINK, DIRECT_LATENCY)]
    host = [Link(a, b, PCIE, DIRECT_LATENCY) for a, b in ((0, 2), (2, 0), (1, 2), (2, 1))]
    return Testbed("pesto", (V100_16, V100_16, XEON_4116), (*gpu_links, *host))


def moirai_inter() -> Testbed:
    """Moirai, Table III, inter-server: four kinds of GPU over InfiniBand; the measured Gbit/s."""
    gbits = ((0, 44.26, 32.92, 44.28), (42.39, 0, 35.32, 44.51), (33.2, 35.31, 0, 32.95), (42.08, 43.22, 33.28, 0))
    processors = (RTX_2080_TI, T4, P4, RTX_3060_TI)
    return Testbed("moirai-inter", processors, _measured(gbits, NETWORK_LATENCY))


def moirai_intra() -> Testbed:
    """Moirai, Table III, intra-server: two V100 and two P100 behind NVSwitch; the measured Gbit/s."""
    gbits = (
        (0, 1170.04, 626.10, 610.56),
        (1148.16, 0, 618.98, 581.09),
        (630.43, 609.82, 0, 571.96),
        (622.67, 575.08, 581.35, 0),
    )
    return Testbed("moirai-intra", (V100_SXM_32, V100_SXM_32, P100, P100), _measured(gbits, DIRECT_LATENCY))


def _all_pairs(n: int, rate: float, latency: float) -> tuple[Link, ...]:
    return tuple(Link(a, b, rate, latency) for a in range(n) for b in range(n) if a != b)


def _measured(gbits: tuple[tuple[float, ...], ...], latency: float) -> tuple[Link, ...]:
    return tuple(Link(a, b, rate * 1e9 / 8, latency) for a, row in enumerate(gbits) for b, rate in enumerate(row) if rate)
