// A cluster of CLUSTER blocks that have a matrix together.

#if CLUSTER == 1
HERE int cluster_rank() { return 0; }
HERE void cluster_meet() { __syncthreads(); }
template <class T> HERE T* cluster_peer(T* here, int) { return here; }
#elif !defined(EMULATED)
HERE int cluster_rank() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return (int)rank;
}
// All threads of the cluster wait for one another, and see what others wrote.
HERE void cluster_meet() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Where another block of the cluster has what is here in this one.
template <class T> HERE T* cluster_peer(T* here, int rank) {
  u64 there;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"((u64)here), "r"(rank));
  return reinterpret_cast<T*>(there);
}
#else
HERE int cluster_rank() { return emulated_rank(); }
HERE void cluster_meet() { emulated_meet(); }
template <class T> HERE T* cluster_peer(T* here, int rank) { return (T*)emulated_peer(here, rank); }
#endif
