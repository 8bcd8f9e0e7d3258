// Swim's kernels, a thread for each point. The names and formulas are those of swim.rs.

typedef unsigned long long count;

// Indices of the neighbours of a point on a periodic square.
struct At {
    count size, i, j;
    __device__ At(count item, count size) : size(size), i(item / size), j(item % size) {}
    __device__ count operator()(int di, int dj) const {
        return (i + size + di) % size * size + (j + size + dj) % size;
    }
};

extern "C" __global__ void fluxes(count items, count size, double dx, const double *u, const double *v,
                                  const double *p, double *cu, double *cv, double *z, double *h) {
    count item = blockIdx.x * (count)blockDim.x + threadIdx.x;
    if (item >= items) return;
    At at(item, size);
    count here = item, less = at(-1, 0), below = at(0, -1), more = at(1, 0), above = at(0, 1);
    double around = p[at(-1, -1)] + p[below] + p[here] + p[less];
    cu[here] = 0.5 * (p[here] + p[less]) * u[here];
    cv[here] = 0.5 * (p[here] + p[below]) * v[here];
    z[here] = 4.0 / dx * (v[here] - v[less] - u[here] + u[below]) / around;
    h[here] = p[here] + 0.25 * (u[more] * u[more] + u[here] * u[here] + v[above] * v[above] + v[here] * v[here]);
}

extern "C" __global__ void step(count items, count size, double dx, double dt, const double *u, const double *v,
                                const double *p, const double *cu, const double *cv, const double *z,
                                const double *h, double *new_u, double *new_v, double *new_p) {
    count item = blockIdx.x * (count)blockDim.x + threadIdx.x;
    if (item >= items) return;
    At at(item, size);
    count here = item, less = at(-1, 0), below = at(0, -1), more = at(1, 0), above = at(0, 1);
    double eighth = dt / 8.0, per_dx = dt / dx;
    double cv_around = cv[above] + cv[at(-1, 1)] + cv[less] + cv[here];
    double cu_around = cu[more] + cu[here] + cu[below] + cu[at(1, -1)];
    new_u[here] = u[here] + eighth * (z[above] + z[here]) * cv_around - per_dx * (h[here] - h[less]);
    new_v[here] = v[here] - eighth * (z[more] + z[here]) * cu_around - per_dx * (h[here] - h[below]);
    new_p[here] = p[here] - per_dx * (cu[more] - cu[here] + cv[above] - cv[here]);
}

extern "C" __global__ void filter(count items, double alpha, count is_first, const double *u, const double *v,
                                  const double *p, const double *new_u, const double *new_v, const double *new_p,
                                  double *old_u, double *old_v, double *old_p) {
    count here = blockIdx.x * (count)blockDim.x + threadIdx.x;
    if (here >= items) return;
    const double *now[3] = {u, v, p}, *next[3] = {new_u, new_v, new_p};
    double *old[3] = {old_u, old_v, old_p};
    for (int field = 0; field < 3; field++) {
        double value = now[field][here];
        if (!is_first) value += alpha * (next[field][here] - 2.0 * value + old[field][here]);
        old[field][here] = value;
    }
}
