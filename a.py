go("one rank", tr(U, head=H.replace("devices: 8", "devices: 1")))
go("resnet", tr("model: resnet-18, strategy: ddp, sequence: 1, mfu: 45%"))
go(
    "resnet2",
    tr(
        "model: resnet-18, strategies: [ddp,{ddp: {broadcast_buffers: false}}], sequence: 50176, mfu: 45%, dtype: float32"
    ),
)
go("gpt2 too long", tr("model: gpt2, strategy: ddp, sequence: 2048, mfu: 45%"))
go(
    "gpt2 too long swept",
    tr("model: gpt2, strategy: ddp, mfu: 45%", "sweep: {sequence: {from: 512, to: 4096, factor: 2}}\n"),
)
go(
    "ps two-level",
    "title: x\ncluster: {nodes: 2, gpus_per_node: 4, intra: {alpha: 5 us, bandwidth: 450 GB/s}, inter: {alpha: 5 us, bandwidth: 50 GB/s}, device: {peak: {bfloat16: 989 TFLOP/s}}}\ntraining: {"
    + U.replace(
        "strategy: ddp",
        "strategies: [parameter_server, {parameter_server: {servers: 4}}, {parameter_server: {servers: co_located}}]",
    )
    + "}\n",
)
go(
    "65536",
    "title: x\ncluster: {nodes: 8192, gpus_per_node: 8, intra: {alpha: 5 us, bandwidth: 450 GB/s}, inter: {alpha: 5 us, bandwidth: 50 GB/s}, device: {peak: {bfloat16: 989 TFLOP/s}}}\ntraining: {model: llama-3-8b, strategy: ddp, sequence: 8192, mfu: 45%}\n",
)
go(
    "65536 ring",
    "title: x\ncluster: {nodes: 8192, gpus_per_node: 8, intra: {alpha: 5 us, bandwidth: 450 GB/s}, inter: {alpha: 5 us, bandwidth: 50 GB/s}, device: {peak: {bfloat16: 989 TFLOP/s}}}\ntraining: {model: llama-3-8b, strategy: ddp, sequence: 8192, mfu: 45%, collectives: {all_reduce: ring}}\n",
)
go("500 points", tr(U.replace(", sequence: 128", ""), "sweep: {sequence: {from: 1, to: 500, step: 1}}\n"))
go("dup", tr(U.replace("strategy: ddp", "strategies: [ddp, ddp, {ddp: {}}, {ddp: {bucket_cap: null}}]")))
go(
    "swept and given",
    tr(U.replace("strategy: ddp", "strategy: {ddp: {bucket_cap: 1 MB}}"), "sweep: {ddp.bucket_cap: [1 MB, 2 MB]}\n"),
)
go(
    "swept and given 2",
    tr(
        U.replace("strategy: ddp", "strategies: [ddp, {ddp: {bucket_cap: 1 MB}}]"),
        "sweep: {ddp.bucket_cap: [1 MB, 2 MB]}\n",
    ),
)
go("v100", tr(U, head="title: x\ncluster: {machine: dgx-1v, nodes: 2}\n"))
go("v100 f16", tr(U + ", dtype: float16", head="title: x\ncluster: {machine: dgx-1v, nodes: 2}\n"))
go("mi300x", tr(U, head="title: x\ncluster: {machine: mi300x-8}\n"))
go("mi300x2", tr(U, head="title: x\ncluster: {machine: mi300x-8, nodes: 2}\n"))
go(
    "full mesh",
    tr(
        U,
        head="title: x\ncluster: {full_mesh: 8, link: {alpha: 5 us, bandwidth: 50 GB/s}, device: {peak: {bfloat16: 989 TFLOP/s}}}\n",
    ),
)
go(
    "slow links",
    tr(
        U + ", slow: {3: 200%}",
        head="title: x\ncluster: {nodes: 2, gpus_per_node: 4, intra: {alpha: 5 us, bandwidth: 450 GB/s}, inter: {alpha: 5 us, bandwidth: 50 GB/s},slow: [{rank: 3, bandwidth: 50%}], device: {peak: {bfloat16: 989 TFLOP/s}}}\n",
    ),
)
go("timeline missing", tr(U, "timeline: {strategy: all_reduce_once}\n"))
go(
    "timeline2",
    tr(
        U,
        "timeline: [{strategy: ddp, ddp.bucket_cap: 3 MB}, {nodes: 3}, {devices: 9999999}, {sequence: 1}, {micro_batch: 0}]\n",
    ),
)
go("no cluster peak", tr(U, head="title: x\ncluster: {devices: 8, link: {alpha: 5 us, bandwidth: 50 GB/s}}\n"))
go(
    "torus",
    tr(
        U,
        head="title: x\ncluster: {torus: [2, 3], link: {alpha: 5 us, bandwidth: 50 GB/s}, device: {peak: {bfloat16: 989 TFLOP/s}}}\n",
    ),
)
