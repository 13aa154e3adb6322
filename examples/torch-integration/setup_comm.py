# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the examples of this folder share: the guide's common setup."""

import ipaddress
import os
import socket

import mscclpp
import torch

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
