/*
 * Threads of the library. They block all signals, so that the program's handlers run in its own
 * threads.
 */
#ifndef IDEM_BASE_THREAD_H
#define IDEM_BASE_THREAD_H

#include <pthread.h>

/* pthread_create(), with its result. */
int idem_thread_start(pthread_t *ret, const pthread_attr_t *attr, void *(*run)(void *data),
                      void *data);

#endif
