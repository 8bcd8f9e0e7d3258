// BFS's kernels, a thread for each node.

typedef unsigned long long count;

// Several threads may reach the same node. All of them write the same.
extern "C" __global__ void expand(count items, count degree, const unsigned int *edges,
                                  const unsigned char *frontier, const unsigned char *visited, unsigned char *next,
                                  int *distance, unsigned char *goes_on) {
    count node = blockIdx.x * (count)blockDim.x + threadIdx.x;
    if (node == 0) *goes_on = 0;
    if (node >= items || !frontier[node]) return;
    for (count edge = node * degree; edge < (node + 1) * degree; edge++) {
        if (visited[edges[edge]]) continue;
        next[edges[edge]] = 1;
        distance[edges[edge]] = distance[node] + 1;
    }
}

extern "C" __global__ void advance(count items, unsigned char *frontier, unsigned char *next, unsigned char *visited,
                                   unsigned char *goes_on) {
    count node = blockIdx.x * (count)blockDim.x + threadIdx.x;
    if (node >= items) return;
    frontier[node] = next[node];
    visited[node] |= next[node];
    if (next[node]) *goes_on = 1;
    next[node] = 0;
}
