/*
 * Lists that run through their elements. An element has `next`, and `link`: the address of the
 * pointer to it, which is the list's `first` or the `next` before it. So it can be removed without
 * its list. `link` is NULL while it is in no list.
 *
 * A list that is a queue also has `end`: the address of the pointer behind its last element.
 */
#ifndef IDEM_BASE_LIST_H
#define IDEM_BASE_LIST_H

#include <stddef.h>

/* Inserts an element before *at: &first, or an element's &next. */
#define idem_link_insert(at, element) idem_link_insert_in(, at, element)
#define idem_link_remove(element) idem_link_remove_in(, element)
/* The same for a queue, whose `end` changes with the last element. */
#define idem_link_prepend(first, end, element) idem_link_prepend_in(, first, end, element)
#define idem_link_append(end, element) idem_link_append_in(, end, element)
#define idem_link_remove_end(end, element) idem_link_remove_end_in(, end, element)

/* For an element that is in several lists at a time: `prefix` is the prefix of its fields for this
   list, such as ready_ for ready_next and ready_link. It is empty in the macros above. */
#define idem_link_insert_in(prefix, at, element)                                                   \
    do {                                                                                           \
        typeof(*(at)) inserted_ = (element), *at_ = (at);                                          \
        inserted_->prefix##next = *at_;                                                            \
        inserted_->prefix##link = at_;                                                             \
        if (*at_ != NULL)                                                                          \
            (*at_)->prefix##link = &inserted_->prefix##next;                                       \
        *at_ = inserted_;                                                                          \
    } while (0)

#define idem_link_remove_in(prefix, element)                                                       \
    do {                                                                                           \
        typeof(element) removed_ = (element);                                                      \
        *removed_->prefix##link = removed_->prefix##next;                                          \
        if (removed_->prefix##next != NULL)                                                        \
            removed_->prefix##next->prefix##link = removed_->prefix##link;                         \
        removed_->prefix##link = NULL;                                                             \
    } while (0)

#define idem_link_prepend_in(prefix, first, end, element)                                          \
    do {                                                                                           \
        typeof(element) prepended_ = (element);                                                    \
        idem_link_insert_in(prefix, first, prepended_);                                            \
        if (prepended_->prefix##next == NULL)                                                      \
            *(end) = &prepended_->prefix##next;                                                    \
    } while (0)

#define idem_link_append_in(prefix, end, element)                                                  \
    do {                                                                                           \
        typeof(**(end)) appended_ = (element), **end_ = (end);                                     \
        appended_->prefix##next = NULL;                                                            \
        appended_->prefix##link = *end_;                                                           \
        **end_ = appended_;                                                                        \
        *end_ = &appended_->prefix##next;                                                          \
    } while (0)

#define idem_link_remove_end_in(prefix, end, element)                                              \
    do {                                                                                           \
        typeof(element) taken_ = (element);                                                        \
        if (taken_->prefix##next == NULL)                                                          \
            *(end) = taken_->prefix##link;                                                         \
        idem_link_remove_in(prefix, taken_);                                                       \
    } while (0)

#endif
