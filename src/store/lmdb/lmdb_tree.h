/*
 * Verifies that the pages of data.mdb form valid trees.
 */
#ifndef IDEM_STORE_LMDB_LMDB_TREE_H
#define IDEM_STORE_LMDB_LMDB_TREE_H

#include "store/lmdb/lmdb_store.h"

/* Returns 0, MDB_CORRUPTED, ENOMEM or an errno. *ret_page is the first damaged page. A page in
   use beyond the file's end counts as damaged. Call it only while no other process has the store
   open. */
int lmdb_tree_check(int fd, size_t page_size, size_t *ret_page);

#endif
