/* The shape of the hand-written kernels' forests, and what their loops share. */
#ifndef BOUND_SHAPE_H
#define BOUND_SHAPE_H

#define FEATURES 28
#define SUMMED 8 /* trees whose values are added in float32 before they are added in float64 */

/* gcc expands no macro in a #pragma line. */
#define PRAGMA(text) _Pragma(#text)
#define UNROLLED(times) PRAGMA(GCC unroll times)

#endif
