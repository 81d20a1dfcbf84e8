/* The lists of names beside Keras's and PyTorch's: every class of the code has a row, and no row is
 * left over. docs/reference.md is compared by test_list.sh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "graph/node.h"
#include "lockstep.h"
#include "nn/layer.h"

static void every_row_is_complete(void **state)
{
    (void)state;
    for (ls_reference_list list = LS_REFERENCE_LAYERS; ls_reference_name(list); list++) {
        ls_reference_row row, before = { .name = "" };
        size_t count = 0;
        for (; ls_reference(list, count, &row); count++) {
            if (!row.name || !row.keras || !row.pytorch)
                fail_msg("%s: row %zu, after %s, lacks %s; add it to src/nn/reference.c", ls_reference_name(list),
                         count, before.name,
                         !row.name    ? "a row"
                         : !row.keras ? "Keras's name"
                                      : "PyTorch's name");
            before = row;
        }
        assert_true(count > 5);
    }
    assert_null(ls_reference_name(LS_REFERENCE_SCHEDULES + 1));
}

/* Finds the row whose name is prefix + name. */
static void has_row(ls_reference_list list, const char *prefix, const char *name)
{
    char full[128];
    ls_reference_row row;
    snprintf(full, sizeof(full), "%s%s", prefix, name);
    for (size_t i = 0; ls_reference(list, i, &row); i++)
        if (strcmp(row.name, full) == 0)
            return;
    fail_msg("%s: no row %s; add it to src/nn/reference.c", ls_reference_name(list), full);
}

static void every_class_has_a_row(void **state)
{
    (void)state;
    for (int kind = LS_LAYER_INPUT; kind < LS_LAYER_KINDS; kind++)
        if (kind != LS_LAYER_REGISTERED)
            has_row(LS_REFERENCE_LAYERS, "", ls_layer_info_of((ls_layer_kind)kind)->function);
    for (ls_loss loss = { .kind = LS_LOSS_NONE + 1 }; loss.kind < LS_LOSS_CUSTOM; loss.kind++)
        has_row(LS_REFERENCE_LOSSES, "ls_", ls_loss_name(&loss));
    for (ls_optimizer o = { .kind = LS_OPTIMIZER_NONE + 1 }; strcmp(ls_optimizer_name(&o), "optimizer") != 0; o.kind++)
        has_row(LS_REFERENCE_OPTIMIZERS, "ls_", ls_optimizer_name(&o));
    for (int op = 0; op < LS_OP_COUNT; op++)
        if (!strstr(ls_ops[op].name, "_grad"))
            has_row(LS_REFERENCE_OPS, "", ls_ops[op].name);
}

/* The name of an activation is Keras's in lower case, and its row follows its number. */
static void activations_are_in_order(void **state)
{
    (void)state;
    ls_reference_row row;
    for (int i = 0; ls_activation_name((ls_activation)i); i++) {
        assert_true(ls_reference(LS_REFERENCE_ACTIVATIONS, (size_t)i, &row));
        if (i != LS_GELU_TANH)
            assert_string_equal(row.keras, ls_activation_name((ls_activation)i));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_complete),
        cmocka_unit_test(every_class_has_a_row),
        cmocka_unit_test(activations_are_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
