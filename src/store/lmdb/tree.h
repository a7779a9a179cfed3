/*
 * Whether the pages of data.mdb hang together.
 */
#ifndef IDEM_STORE_LMDB_TREE_H
#define IDEM_STORE_LMDB_TREE_H

#include "store/lmdb/lmdb.h"

/* 0, MDB_CORRUPTED, ENOMEM or an errno. *ret_page is the first page that is damaged. A
   page that is in use and beyond the file's end is damaged. Only while nobody else has the
   store open. */
int lmdb_tree_check(int fd, size_t page_size, size_t *ret_page);

#endif
