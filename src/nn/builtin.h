/* Functions that make built-in models. */
#ifndef LS_NN_BUILTIN_H
#define LS_NN_BUILTIN_H

#include "nn/model.h"

typedef struct ls_builtin_maker {
    ls_context *ctx;
    const char *name;
    ls_shape input;
    int64_t classes;
    int variant; /* member of a family, such as 18 of resnet18 */
} ls_builtin_maker;

/* Make the networks of torchvision, with its structure and, except for ResNet, its names of
 * layers. */
ls_status ls_builtin_resnet(const ls_builtin_maker *m, ls_model **out);
ls_status ls_builtin_vgg(const ls_builtin_maker *m, ls_model **out);
ls_status ls_builtin_mobilenet_v2(const ls_builtin_maker *m, ls_model **out);
ls_status ls_builtin_densenet(const ls_builtin_maker *m, ls_model **out);
ls_status ls_builtin_efficientnet(const ls_builtin_maker *m, ls_model **out);
ls_status ls_builtin_convnext(const ls_builtin_maker *m, ls_model **out);

#endif
