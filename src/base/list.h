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

/* For an element that is in several lists at a time: `list` is what its fields for this one begin
   with, such as ready_ for ready_next and ready_link. */
#define idem_link_insert_in(list, at, element)                                                     \
    do {                                                                                           \
        typeof(*(at)) inserted_ = (element), *at_ = (at);                                          \
        inserted_->list##next = *at_;                                                              \
        inserted_->list##link = at_;                                                               \
        if (*at_ != NULL)                                                                          \
            (*at_)->list##link = &inserted_->list##next;                                           \
        *at_ = inserted_;                                                                          \
    } while (0)

#define idem_link_remove_in(list, element)                                                         \
    do {                                                                                           \
        typeof(element) removed_ = (element);                                                      \
        *removed_->list##link = removed_->list##next;                                              \
        if (removed_->list##next != NULL)                                                          \
            removed_->list##next->list##link = removed_->list##link;                               \
        removed_->list##link = NULL;                                                               \
    } while (0)

#define idem_link_prepend_in(list, first, end, element)                                            \
    do {                                                                                           \
        typeof(element) prepended_ = (element);                                                    \
        idem_link_insert_in(list, first, prepended_);                                              \
        if (prepended_->list##next == NULL)                                                        \
            *(end) = &prepended_->list##next;                                                      \
    } while (0)

#define idem_link_append_in(list, end, element)                                                    \
    do {                                                                                           \
        typeof(**(end)) appended_ = (element), **end_ = (end);                                     \
        appended_->list##next = NULL;                                                              \
        appended_->list##link = *end_;                                                             \
        **end_ = appended_;                                                                        \
        *end_ = &appended_->list##next;                                                            \
    } while (0)

#define idem_link_remove_end_in(list, end, element)                                                \
    do {                                                                                           \
        typeof(element) taken_ = (element);                                                        \
        if (taken_->list##next == NULL)                                                            \
            *(end) = taken_->list##link;                                                           \
        idem_link_remove_in(list, taken_);                                                         \
    } while (0)

#endif
