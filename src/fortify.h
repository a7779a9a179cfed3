/*
 * Checked copies and prints (_FORTIFY_SOURCE): read before every other file of ours, by Meson's
 * -include and by src/nginx/config. Here and not among the flags, because the flags do not know
 * whether a file is optimised in the end (CFLAGS=-O0), which the checks need, and because a
 * distribution gives level 2.
 */
#ifndef IDEM_FORTIFY_H
#define IDEM_FORTIFY_H

/* The sanitizers have checks of their own, which these would hide from them. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IDEM_SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IDEM_SANITIZED
#endif

#if defined(__OPTIMIZE__) && !defined(IDEM_SANITIZED)
#undef _FORTIFY_SOURCE
#if defined(__clang__) || __GNUC__ >= 12
#define _FORTIFY_SOURCE 3
#else
#define _FORTIFY_SOURCE 2
#endif
#endif

#endif
