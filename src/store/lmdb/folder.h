/*
 * The store's directory: opened, used as its owner, and searched for what is
 * not a file of ours.
 */
#ifndef IDEM_STORE_LMDB_FOLDER_H
#define IDEM_STORE_LMDB_FOLDER_H

#include "store/lmdb/lmdb.h"

/* Opens the directory, and makes it first where `create` allows that. */
int lmdb_folder_open(const struct lmdb_config *config, int *ret_fd, struct stat *ret_st,
                     struct idem_error *err);

/* The user and the groups that root becomes. Asks the user database, which may take a while. */
void lmdb_owner_find(struct lmdb_owner *owner, uid_t uid);
void lmdb_owner_release(struct lmdb_owner *owner);

/* A thread's identity before it became the owner. */
struct lmdb_identity {
    bool changed;
    uid_t uid;
    gid_t gid;
    gid_t *groups; /* owned, until lmdb_owner_resign() */
    size_t groups_n;
};

/* Between these two, root's calling thread uses files as the directory's owner. Changes nothing for
   other users, or where the directory is root's. 0 or an errno; then nothing was changed. */
int lmdb_owner_become(const struct lmdb_owner *owner, struct lmdb_identity *before);
void lmdb_owner_resign(struct lmdb_identity *before);
int lmdb_owner_fail(const struct lmdb_env *env, int rc, struct idem_error *err);

/* Which file has this name; inode 0: none. Refuses what is not a regular file with one name. */
int lmdb_folder_look(const struct lmdb_env *env, const char *name, struct lmdb_file *ret,
                     struct idem_error *err);
/* Opens a regular file with one name, through no link. Without O_CREAT, *ret_fd is -1 where there
   is none. */
int lmdb_folder_file(const struct lmdb_env *env, const char *name, int flags, int *ret_fd,
                     struct stat *ret_st, struct idem_error *err);
/* The same for a FIFO: its descriptor, or -1 with errno; ENOENT where it is something else. */
int lmdb_folder_fifo(const struct lmdb_env *env, const char *name, int flags);
/* Refuses where another file than this one has the name by now. */
int lmdb_folder_same(const struct lmdb_env *env, const char *name, const struct lmdb_file *file,
                     struct idem_error *err);

#endif
