# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the examples of this folder share: the guide's common setup, and that of programs on torch.distributed."""

import ipaddress
import os
import socket

import mscclpp
import mscclpp.torch
import torch
import torch.distributed as dist

try:
    import psutil
except ImportError:
    psutil = None


def get_network_interface(ip: str):
    """The network interface that has this IP address, or None."""
    target = ipaddress.ip_address(ip)
    if psutil is None:
        return "lo" if target.is_loopback else None
    for interface, links in psutil.net_if_addrs().items():
        for link in links:
            if link.family == socket.AF_INET and ipaddress.ip_address(link.address) == target:
                return interface
    return None


def init_communicator():
    """The group of the ranks that torchrun has started."""
    rank = int(os.environ["RANK"])
    world_size = int(os.environ["WORLD_SIZE"])
    local_rank = int(os.environ.get("LOCAL_RANK", rank))

    # Ranks may share a GPU, under MPS, to try many on few.
    torch.cuda.set_device(local_rank % max(torch.cuda.device_count(), 1))

    master_addr = os.environ["MSCCLPP_MASTER_ADDR"]
    master_port = os.environ["MSCCLPP_MASTER_PORT"]
    interface = get_network_interface(master_addr)
    if interface is None:
        raise ValueError(f"Cannot find network interface for IP {master_addr}")

    interface_trio = f"{interface}:{master_addr}:{master_port}"
    return mscclpp.CommGroup(interfaceIpPortTrio=interface_trio, rank=rank, size=world_size)


def init_process_group():
    """The default process group of the backend mscclpp, and the device of this rank's tensors: "cuda" where there are GPUs,
    else, and with MSCCLPP_DEVICE=sim, "cpu", which is the simulated machine."""
    device = "cpu"
    if torch.cuda.is_available() and os.environ.get("MSCCLPP_DEVICE") != "sim":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        device = "cuda"
    mscclpp.torch.register()  # not needed where the package was installed by pip
    dist.init_process_group("mscclpp")
    return device
