/* cmocka.h needs these headers before it. */
#ifndef TESTS_SUPPORT_CMOCKA_C_H
#define TESTS_SUPPORT_CMOCKA_C_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h> /* included after the others */

#endif /* TESTS_SUPPORT_CMOCKA_C_H */
