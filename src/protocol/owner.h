/*
 * Generates owner ids: one for each claim.
 */
#ifndef IDEM_PROTOCOL_OWNER_H
#define IDEM_PROTOCOL_OWNER_H

#include "protocol/record.h"

/* Generates 128 bits that are unique among this process, its children and other machines. 0, or
   IDEM_E_REFUSED if the system returns no random bits. */
int idem_owner_make(unsigned char owner[IDEM_OWNER_LEN]);

#endif
