/*
 * Another user's permissions, which root has to ask for: root itself has every permission.
 */
#ifndef IDEM_BASE_USER_H
#define IDEM_BASE_USER_H

#include <stdbool.h>
#include <sys/types.h>

struct idem_user {
    const char *name;
    uid_t uid;
    gid_t gid;
};

/* Returns may(path) of a child process that has become the user; NULL: of this process. False with
   errno. `may` may call only what is safe after a fork. */
bool idem_user_may(const struct idem_user *user, bool (*may)(const char *path), const char *path);

#endif
