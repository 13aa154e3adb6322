// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Everything that a compiler turns into a call of a hook: hooks.py compares the calls with what the hooks define.
#include <atomic>
#include <cstring>

#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Watomic-alignment"

__extension__ using Wide = __int128;

struct Base {
  virtual ~Base();
  int field = 0;
};
struct Derived : Base {
  ~Derived() override;
};
Base::~Base() { ++field; }
Derived::~Derived() { ++field; }

struct [[gnu::packed]] Unaligned {
  char byte;
  short two;
  int four;
  long eight;
  Wide sixteen;
};

struct Large {
  char bytes[100];
};

volatile char volatile1;
volatile short volatile2;
volatile int volatile4;
volatile long volatile8;
volatile Wide volatile16;

template <class T>
void plain(T* word) {
  *word = static_cast<T>(*word + 1);
}

template <class T>
void atomics(T* word, T value) {
  plain(word);
  __atomic_store_n(word, __atomic_load_n(word, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
  __atomic_exchange_n(word, value, __ATOMIC_SEQ_CST);
  __atomic_fetch_add(word, value, __ATOMIC_SEQ_CST);
  __atomic_fetch_sub(word, value, __ATOMIC_SEQ_CST);
  __atomic_fetch_and(word, value, __ATOMIC_SEQ_CST);
  __atomic_fetch_or(word, value, __ATOMIC_SEQ_CST);
  __atomic_fetch_xor(word, value, __ATOMIC_SEQ_CST);
  __atomic_fetch_nand(word, value, __ATOMIC_SEQ_CST);
  __atomic_add_fetch(word, value, __ATOMIC_SEQ_CST);
  T expected = value;
  __atomic_compare_exchange_n(word, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
  __atomic_compare_exchange_n(word, &expected, value, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
  __sync_val_compare_and_swap(word, expected, value);
  __sync_lock_test_and_set(word, value);
}

void everything(char* bytes, Unaligned* unaligned, Base* object, unsigned count);
void everything(char* bytes, Unaligned* unaligned, Base* object, unsigned count) {
  atomics(reinterpret_cast<unsigned char*>(bytes), static_cast<unsigned char>(1));
  atomics(reinterpret_cast<unsigned short*>(bytes), static_cast<unsigned short>(1));
  atomics(reinterpret_cast<unsigned*>(bytes), 1u);
  atomics(reinterpret_cast<unsigned long*>(bytes), 1ul);
  atomics(reinterpret_cast<Wide*>(bytes), static_cast<Wide>(1));
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  volatile1 = static_cast<char>(volatile1 + 1);
  volatile2 = static_cast<short>(volatile2 + 1);
  volatile4 = volatile4 + 1;
  volatile8 = volatile8 + 1;
  volatile16 = volatile16 + 1;
  ++unaligned->byte;
  ++unaligned->two;
  ++unaligned->four;
  ++unaligned->eight;
  ++unaligned->sixteen;
  std::memcpy(bytes, unaligned, count);
  std::memmove(bytes, bytes + 1, count);
  std::memset(bytes, 0, count);
  Large copy = *reinterpret_cast<Large*>(bytes);
  *reinterpret_cast<Large*>(bytes + count) = copy;
  static Derived const guarded;
  delete object;
}
