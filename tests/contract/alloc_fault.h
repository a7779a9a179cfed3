/*
 * Allocations that fail on request. The program defines the functions of
 * malloc(3) anew, so that every library that it is linked with (LMDB,
 * libcrypto, libc itself) uses these, in every thread.
 */
#ifndef IDEM_CONTRACT_ALLOC_FAULT_H
#define IDEM_CONTRACT_ALLOC_FAULT_H

#include <stdbool.h>

enum alloc_fault {
    ALLOC_FAIL_ONCE,  /* the n-th from now fails */
    ALLOC_FAIL_SINCE, /* the n-th and all later ones fail */
};

void alloc_arm(long n, enum alloc_fault how);
bool alloc_disarm(void); /* true if one failed */

/* The blocks that are allocated now, by the program and all its libraries. */
long alloc_live(void);

#endif
