"""A function captured in a CUDA graph, as torch wants it done."""

import torch


def captured(run):
    """The graph, and what the function returned in it; run a few times before on a stream of its own."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = run()
    return graph, results


def assert_a_graph_gives_the_same(run):
    expected = [each.clone() for each in run()]
    graph, results = captured(run)
    for each in results:
        each.fill_(float("nan"))
    graph.replay()
    for mine, theirs in zip(results, expected, strict=True):
        torch.testing.assert_close(mine, theirs)  # a library may take other products in a graph
