/*
 * Allocations that fail when they are told to. The functions of malloc(3) are
 * defined anew in the program, so that every library it is linked with (LMDB,
 * libcrypto, libc itself) goes through them, in every thread.
 */
#ifndef IDEM_CONTRACT_ALLOC_FAULT_H
#define IDEM_CONTRACT_ALLOC_FAULT_H

#include <stdbool.h>

enum alloc_fault {
    ALLOC_FAIL_ONCE,  /* the n-th from now fails */
    ALLOC_FAIL_SINCE, /* so do all after it */
};

void alloc_arm(long n, enum alloc_fault how);
bool alloc_disarm(void); /* true if one failed */

/* Blocks that are allocated now, by anybody. */
long alloc_live(void);

#endif
