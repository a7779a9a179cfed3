/*
 * Who claims: an id for each claim.
 */
#ifndef IDEM_CORE_OWNER_H
#define IDEM_CORE_OWNER_H

#include "core/record.h"

/* 128 bits that nobody else has, in this process, its children or elsewhere. 0 or IDEM_E_REFUSED,
   where the system gives no random bits. */
int idem_owner_make(unsigned char owner[IDEM_OWNER_LEN]);

#endif
