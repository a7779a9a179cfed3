/*
 * Root finds a directory name by name, so that no link of another
 * user leads it elsewhere.
 */
#ifndef IDEM_BASE_PATH_WALK_H
#define IDEM_BASE_PATH_WALK_H

#include "base/error.h"

/* Opens the directory `path`. With `create`, a missing last name becomes a directory.
   IDEM_E_ABSENT: the directory does not exist. The caller owns *ret_fd. */
int idem_path_walk(const char *path, bool create, int *ret_fd, struct idem_error *err);

/* Report why a directory cannot be made or opened; `code` is an errno. */
int idem_path_make_fail(const char *path, int code, struct idem_error *err);
int idem_path_open_fail(const char *path, int code, struct idem_error *err);

#endif
