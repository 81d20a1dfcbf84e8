/* Marks free memory for the address sanitizer, so that it reports use after free as for malloc. */
#ifndef LS_BASE_POISON_H
#define LS_BASE_POISON_H

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LS_HAVE_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define LS_HAVE_ASAN 1
#endif

#ifdef LS_HAVE_ASAN
#include <sanitizer/asan_interface.h>
#define LS_POISON(at, bytes)   __asan_poison_memory_region(at, bytes)
#define LS_UNPOISON(at, bytes) __asan_unpoison_memory_region(at, bytes)
#else
#define LS_POISON(at, bytes)   ((void)(at), (void)(bytes))
#define LS_UNPOISON(at, bytes) ((void)(at), (void)(bytes))
#endif

#endif
