"""What every NCCL variable that is read changes here, or why a known one changes nothing.

Users see the second; the table in the documentation is made of both.
"""

EFFECTS = {
    "NCCL_ALGO": "algorithms that may be chosen; `^`, and lists by function since 2.24",
    "NCCL_PROTO": "protocols that may be chosen, in the same language; LL128 here lifts its rules",
    "NCCL_MIN_NCHANNELS": "fewest channels",
    "NCCL_MIN_NRINGS": "fewest channels (old name)",
    "NCCL_MIN_CTAS": "fewest channels",
    "NCCL_MAX_NCHANNELS": "most channels",
    "NCCL_MAX_NRINGS": "most channels (old name)",
    "NCCL_MAX_CTAS": "most channels",
    "NCCL_MIN_P2P_NCHANNELS": "fewest channels of sends and receives",
    "NCCL_MAX_P2P_NCHANNELS": "most channels of sends and receives",
    "NCCL_NCHANNELS_PER_NET_PEER": "channels to one peer over the network",
    "NCCL_NVLS_ENABLE": "0: neither NVLS nor NVLSTree",
    "NCCL_NVLS_NCHANNELS": "channels of NVLS",
    "NCCL_NVLS_CHUNKSIZE": "largest chunk of NVLS",
    "NCCL_NVLSTREE_MAX_CHUNKSIZE": "largest chunk of NVLSTree",
    "NCCL_COLLNET_ENABLE": "searches CollNet's channels, lets CollNet and NVLS over nodes run",
    "NCCL_COLLNET_NODE_THRESHOLD": "fewest nodes for CollNet",
    "NCCL_PAT_ENABLE": "0: no PAT",
    "NCCL_MNNVL_ENABLE": "0: every host is a node, even inside one NVLink domain",
    "NCCL_LL128_C2C": "0: no LL128 between nodes where the NIC is reached over NVLink (PXN)",
    "NCCL_NTHREADS": "threads of a block: when calls get more channels",
    "NCCL_LL128_NTHREADS": "threads of a block with LL128",
    "NCCL_NET_OVERHEAD": "NCCL's estimate of rings between nodes, and so the choice",
    "NCCL_BUFFSIZE": "FIFO of Simple: slots, slices and chunks",
    "NCCL_LL_BUFFSIZE": "FIFO of LL",
    "NCCL_LL128_BUFFSIZE": "FIFO of LL128",
    "NCCL_P2P_DISABLE": "GPUs exchange data through host memory",
    "NCCL_P2P_LEVEL": "farthest path over which GPUs address each other",
    "NCCL_P2P_DIRECT_DISABLE": "one process for all GPUs copies out of FIFOs as others do",
    "NCCL_NVB_DISABLE": "no paths over the NVLinks of another GPU",
    "NCCL_SHM_DISABLE": "refused where GPUs have no other way; NCCL would use the network",
    "NCCL_NET_GDR_LEVEL": "farthest path from GPU to NIC for GPUDirect; beyond it, host memory",
    "NCCL_NET_GDR_C2C": "0: no GPUDirect over C2C",
    "NCCL_PXN_DISABLE": "no sending by a NIC beside another GPU",
    "NCCL_P2P_PXN_LEVEL": "below 2: sends leave by the sender's own NIC",
    "NCCL_CROSS_NIC": "whether rings may change rails",
    "NCCL_NETDEVS_POLICY": "how many NICs a GPU takes in turn",
    "NCCL_NET": "Socket: TCP instead of InfiniBand or RoCE",
    "NCCL_IB_DISABLE": "1: TCP instead of InfiniBand or RoCE",
    "NCCL_IB_HCA": "which NICs (mlx5_0, mlx5_1, …) NCCL uses; `^` all but, `=` whole names",
    "NCCL_SOCKET_IFNAME": "with TCP: which NICs (eth0, eth1, …) NCCL uses; `^` and `=` too",
    "NCCL_IB_QPS_PER_CONNECTION": "queue pairs, each with a hash of its own where routing is ecmp",
    "NCCL_P2P_SCHEDULE_GROUP_SIZE": "ranks of one group in the rounds of sends",
    "NCCL_P2P_LL_THRESHOLD": "bytes a channel up to which sends use LL",
    "NCCL_ALLOC_P2P_NET_LL_BUFFERS": "LL for sends over the network as well",
    "NCCL_P2P_NVL_CHUNKSIZE": "chunk of sends over NVLink",
    "NCCL_P2P_NET_CHUNKSIZE": "chunk of sends over the network",
    "NCCL_P2P_PCI_CHUNKSIZE": "chunk of sends over PCIe",
    "FI_CXI_RX_MATCH_MODE": "Slingshot: software: receives are matched, and data fetched, later",
    "FI_CXI_RDZV_PROTO": "Slingshot: alt_read: NICs are busy longer with large messages",
    "NCCL_TUNER_CONFIG_FILE": "a tuner table that replaces NCCL's choice",
    "NCCL_GRAPH_FILE": "channels that replace NCCL's search",
    "NCCL_TESTS_SPLIT": "several communicators at once, as `workload.split`",
}

# Known and without effect here, for a reason worth telling.
WITHOUT_EFFECT = {
    "NCCL_P2P_READ_ENABLE": "ranks always write over NVLink and PCIe here, at the same cost",
    "NCCL_SHM_LOCALITY": "the data crosses host memory once on either side",
    "NCCL_NET_GDR_READ": "sends and receives share one way between GPU and NIC here",
    "NCCL_NET_DISABLE_INTRA": "the network is never used inside a node here",
    "NCCL_IB_SPLIT_DATA_ON_QPS": "queue pairs share a connection's data evenly in either case",
    "NCCL_IB_AR_THRESHOLD": "the message that announces data takes no time here",
    "NCCL_IB_ADAPTIVE_ROUTING": "cluster.fabric.routing says how switches choose (spray)",
    "NCCL_SOCKET_NTHREADS": "the transport's rate a NIC is that of NCCL's default threads",
    "NCCL_NSOCKS_PERTHREAD": "the transport's rate a NIC is that of NCCL's default sockets",
    "NCCL_LOCAL_REGISTER": "nccl.registration says whether buffers are registered",
    "NCCL_GRAPH_REGISTER": "nccl.registration says whether buffers are registered",
    "NCCL_TOPO_FILE": "give the file in the place of the machine",
    "NCCL_TOPO_DUMP_FILE": "netsim topo export writes it",
    "NCCL_GRAPH_DUMP_FILE": "--graph-out writes it",
    "NCCL_TUNER_PLUGIN": "no plugin is loaded; --tuner takes the table of the example plugin",
    "NCCL_NET_PLUGIN": "cluster.fabric.transport says what the network is",
    "NCCL_IB_MERGE_NICS": "NICs with two ports are one NIC here",
    "NCCL_CTA_POLICY": "nccl.registration and NCCL_MAX_CTAS say what it would change",
    "NCCL_TESTS_MIN_BW": "--acceptance tells what to set it to",
}
USUAL = "it changes nothing of what is simulated"


def reason(name: str) -> str:
    """Why a known variable changes nothing."""
    return WITHOUT_EFFECT.get(name, USUAL)
