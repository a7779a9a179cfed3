/*
 * Opens the store's directory, uses it as its owner, and refuses entries that
 * are not files of the store.
 */
#ifndef IDEM_STORE_LMDB_LMDB_DIRECTORY_H
#define IDEM_STORE_LMDB_LMDB_DIRECTORY_H

#include "store/lmdb/lmdb_store.h"

/* Opens the directory; creates it first if `create` is set. */
int lmdb_directory_open(const struct lmdb_config *config, int *ret_fd, struct stat *ret_st,
                        struct idem_error *err);

/* Finds the user and the groups that root becomes. Queries the user database, which may take a
   while. */
void lmdb_owner_find(struct lmdb_owner *owner, uid_t uid);
void lmdb_owner_release(struct lmdb_owner *owner);

/* A thread's identity before it became the owner. */
struct lmdb_identity {
    bool changed;
    uid_t uid;
    gid_t gid;
    gid_t *groups; /* owned, until lmdb_identity_restore() */
    size_t groups_n;
};

/* Between these two calls, root's calling thread uses files as the directory's owner. Changes
   nothing for other users, or if the directory is root's. Returns 0 or an errno; on failure nothing
   was changed. */
int lmdb_owner_become(const struct lmdb_owner *owner, struct lmdb_identity *before);
void lmdb_identity_restore(struct lmdb_identity *before);
/* Root's whole process becomes the owner, and cannot go back. Returns 0 or an errno; on failure
   the process must not go on. */
int lmdb_owner_stay(const struct lmdb_owner *owner);
int lmdb_owner_fail(const struct lmdb_env *env, int rc, struct idem_error *err);

/* Reports the file that has this name; inode 0: none. Refuses all but a regular file with one
   name. */
int lmdb_directory_find(const struct lmdb_env *env, const char *name, struct lmdb_file *ret,
                        struct idem_error *err);
/* Opens a regular file with one name, through no link. Without O_CREAT, *ret_fd is -1 if the
   file does not exist. */
int lmdb_directory_open_file(const struct lmdb_env *env, const char *name, int flags, int *ret_fd,
                             struct stat *ret_st, struct idem_error *err);
/* The same for a FIFO: its descriptor, or -1 with errno; ENOENT if the entry is not a FIFO. */
int lmdb_directory_open_fifo(const struct lmdb_env *env, const char *name, int flags);
/* Refuses if another file has the name by now. */
int lmdb_directory_check_file(const struct lmdb_env *env, const char *name,
                              const struct lmdb_file *file, struct idem_error *err);
int lmdb_directory_refuse_replaced(const struct lmdb_env *env, const char *name,
                                   struct idem_error *err);

/* True if the permissions of this process suffice to use the directory and the files in it, or, if
   it does not exist, to make it. Else errno is set. */
bool lmdb_directory_may_open(const char *path);

#endif
