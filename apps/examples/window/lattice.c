/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A lattice in four dimensions: window_lattice [--apart] [--by messages] NAME SIZE N SOLVES. SIZE
 * programs, on any nodes, join the group NAME and divide a periodic lattice of N^4 sites. A site
 * has a vector of three complex numbers, a link between two sites a matrix of SU(3). Conjugate
 * gradients solve
 *
 *   (8 + m^2) v(s) - sum over the 8 neighbours t of s: U(s, t) v(t) = b(s)
 *
 * as codes of lattice gauge theory do. In each iteration a member gives the faces of its sublattice
 * to its neighbours by puts with notices, and all add up two dot products. With --by messages the
 * faces go by connections.
 *
 * Each member checks the residual, and its sites against a solution of the whole lattice, which it
 * computes by itself.
 */
#include "members.h"

#include <complex.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIMS 4
#define FACES (2 * DIMS) /* face 2 d lies at the lower end of dimension d, 2 d + 1 at the upper */
#define MASS 0.4	 /* m */
#define ACCURACY 1e-10	 /* of the residual, relative to b */
#define ITERATIONS 1000

typedef double complex number;
struct vector {
	number color[3];
};

struct matrix {
	number row[3][3];
};

/* A member's part of the lattice, or all of it. Dimension 0 is the innermost one. */
struct lattice {
	struct members *m;	 /* NULL: all of it, for this member alone */
	struct weir_window *win; /* of the halos */
	size_t n;		 /* sites of the whole lattice in each dimension */
	size_t grid[DIMS];	 /* members in each dimension */
	size_t place[DIMS];	 /* own one in the grid */
	size_t first[DIMS], extent[DIMS];
	size_t stride[DIMS]; /* sites between neighbours */
	size_t sites;
	size_t face_sites;	   /* room for any face of any member */
	uint32_t neighbour[FACES]; /* ranks */
	struct vector *halos;	   /* of two exchanges: the faces of the neighbours */
	struct vector *packed;	   /* faces as messages */
	uint32_t exchanges;
	struct matrix (*link)[FACES];	  /* by site: to its neighbours */
	struct vector *x, *b, *r, *p, *q; /* fields */
};

/* ---- the problem: the same numbers however the lattice is divided ---- */

static number
dot(const number *a, const number *b)
{
	return conj(a[0]) * b[0] + conj(a[1]) * b[1] + conj(a[2]) * b[2];
}

static void
normalize(number *a)
{
	double length = sqrt(creal(dot(a, a)));

	for (unsigned i = 0; i < 3; i++)
		a[i] /= length;
}

/* A matrix of SU(3): two rows by chance, made orthonormal; the third is their cross product. */
static struct matrix
unitary(uint64_t chance)
{
	struct matrix u;
	number *a = u.row[0], *b = u.row[1], *c = u.row[2], along;

	for (unsigned i = 0; i < 3; i++) {
		a[i] = noise(chance + 4 * i) + I * noise(chance + 4 * i + 1);
		b[i] = noise(chance + 4 * i + 2) + I * noise(chance + 4 * i + 3);
	}
	normalize(a);
	along = dot(a, b);
	for (unsigned i = 0; i < 3; i++)
		b[i] -= along * a[i];
	normalize(b);
	for (unsigned i = 0; i < 3; i++)
		c[i] = conj(a[(i + 1) % 3] * b[(i + 2) % 3] - a[(i + 2) % 3] * b[(i + 1) % 3]);
	return u;
}

static struct matrix
adjoint(struct matrix u)
{
	struct matrix v;

	for (unsigned i = 0; i < 3; i++)
		for (unsigned j = 0; j < 3; j++)
			v.row[i][j] = conj(u.row[j][i]);
	return v;
}

static size_t
coordinate(const struct lattice *l, size_t site, unsigned d)
{
	return site / l->stride[d] % l->extent[d];
}

/* The number of a site in the whole lattice, or of the one below it in a dimension; -1: in none. */
static uint64_t
whole_site(const struct lattice *l, size_t site, int below)
{
	uint64_t id = 0;

	for (int d = DIMS - 1; d >= 0; d--)
		id = id * l->n + (l->first[d] + coordinate(l, site, (unsigned)d) +
				  (d == below ? l->n - 1 : 0)) %
				     l->n;
	return id;
}

static void
make_links(struct lattice *l)
{
	for (size_t site = 0; site < l->sites; site++)
		for (int d = 0; d < DIMS; d++) {
			uint64_t here = whole_site(l, site, -1), below = whole_site(l, site, d);

			/* a link belongs to its lower site */
			l->link[site][2 * d] = adjoint(unitary(mix(below * DIMS + (uint64_t)d)));
			l->link[site][2 * d + 1] = unitary(mix(here * DIMS + (uint64_t)d));
		}
}

static void
make_source(struct lattice *l, uint64_t solve)
{
	for (size_t site = 0; site < l->sites; site++)
		for (unsigned i = 0; i < 3; i++) {
			uint64_t chance = mix(whole_site(l, site, -1)) + mix(3 * solve + i);

			l->b[site].color[i] = noise(chance) + I * noise(chance + 1);
		}
}

/* ---- faces ---- */

/* A face is a row of blocks of sites; in a halo they are contiguous. */
static struct weir_layout
face_layout(const struct lattice *l, unsigned d)
{
	struct weir_layout layout = {.block = l->stride[d] * sizeof(struct vector), .dims = 1};

	layout.dim[0].count = l->sites / l->stride[d] / l->extent[d];
	layout.dim[0].stride = (int64_t)(layout.block * l->extent[d]);
	return layout;
}

static struct vector *
face_of(const struct lattice *l, struct vector *v, unsigned face)
{
	unsigned d = face / 2;

	return v + (face % 2 ? (l->extent[d] - 1) * l->stride[d] : 0);
}

static size_t
face_bytes(const struct lattice *l, unsigned d)
{
	return l->sites / l->extent[d] * sizeof(struct vector);
}

static void
copy_face(const struct lattice *l, struct vector *v, unsigned face, void *to)
{
	struct weir_layout layout = face_layout(l, face / 2);
	const char *from = (const char *)face_of(l, v, face);

	for (size_t i = 0; i < layout.dim[0].count; i++)
		memcpy((char *)to + i * layout.block, from + (int64_t)i * layout.dim[0].stride,
		       layout.block);
}

/* A neighbour's lower face is the upper halo here, and the other way round. */
static unsigned
opposite(unsigned face)
{
	return face ^ 1;
}

static struct vector *
halo(const struct lattice *l, unsigned face)
{
	return l->halos + (l->exchanges % 2 * FACES + face) * l->face_sites;
}

static int
put_faces(struct lattice *l, struct vector *v)
{
	uint32_t tag = l->exchanges % (1u << 16) * FACES;
	struct weir_watch watch;
	int rc = 0;

	for (unsigned face = 0; !rc && face < FACES; face++) {
		struct weir_layout here = face_layout(l, face / 2);
		struct weir_transfer t = {.buf = face_of(l, v, face),
					  .here = &here,
					  .length = face_bytes(l, face / 2),
					  .offset = l->exchanges % 2 * FACES + opposite(face),
					  .notify = WEIR_WITH_NOTICE,
					  .tag = tag + opposite(face)};

		if (l->grid[face / 2] > 1)
			rc = weir_window_put_with(l->win, l->neighbour[face], &t);
	}
	for (unsigned face = 0; !rc && face < FACES; face++) {
		if (l->grid[face / 2] == 1)
			continue;
		weir_watch_init(&watch, l->win, l->neighbour[face], tag + face, 1);
		rc = weir_watch_wait(&watch, -1);
	}
	return rc;
}

static int
send_faces(struct lattice *l, struct vector *v)
{
	uint32_t rank = l->m->rank, size = l->m->size;
	struct piece out[FACES], in[FACES];
	size_t outs = 0, ins = 0;

	for (uint32_t k = 1; k < size; k++)
		for (unsigned face = 0; face < FACES; face++) {
			unsigned at = opposite(face); /* where it is a halo */

			if (l->neighbour[face] == (rank + k) % size) {
				void *packed = l->packed + face * l->face_sites;

				copy_face(l, v, face, packed);
				out[outs++] = (struct piece){l->neighbour[face], packed,
							     face_bytes(l, face / 2)};
			}
			if (l->neighbour[at] == (rank + size - k) % size)
				in[ins++] = (struct piece){l->neighbour[at], halo(l, at),
							   face_bytes(l, at / 2)};
		}
	return members_exchange(l->m, out, outs, in, ins);
}

/*
 * Exchanges the faces of v. Halos of two exchanges take turns: when a neighbour's face has come,
 * that one has used the halos of the exchange before.
 */
static int
exchange(struct lattice *l, struct vector *v)
{
	l->exchanges++;
	for (unsigned face = 0; face < FACES; face++)
		if (l->grid[face / 2] == 1)
			copy_face(l, v, face, halo(l, opposite(face)));
	if (!l->m)
		return 0;
	return l->m->by_messages ? send_faces(l, v) : put_faces(l, v);
}

/* ---- the solver ---- */

/* out = (8 + m^2) v - the sum of the neighbours by their links */
static int
apply(struct lattice *l, struct vector *v, struct vector *out)
{
	int rc = exchange(l, v);

	for (size_t site = 0; !rc && site < l->sites; site++) {
		struct vector sum;

		for (unsigned i = 0; i < 3; i++)
			sum.color[i] = (FACES + MASS * MASS) * v[site].color[i];
		for (unsigned face = 0; face < FACES; face++) {
			unsigned d = face / 2;
			size_t stride = l->stride[d], at = coordinate(l, site, d);
			const struct matrix *u = &l->link[site][face];
			const struct vector *w;

			if (at == (face % 2 ? l->extent[d] - 1 : 0))
				w = halo(l, face) + site / (stride * l->extent[d]) * stride +
				    site % stride;
			else
				w = face % 2 ? &v[site + stride] : &v[site - stride];
			for (unsigned i = 0; i < 3; i++)
				sum.color[i] -= u->row[i][0] * w->color[0] +
						u->row[i][1] * w->color[1] +
						u->row[i][2] * w->color[2];
		}
		out[site] = sum;
	}
	return rc;
}

/* The real part of the scalar product of two fields. */
static int
product(const struct lattice *l, const struct vector *a, const struct vector *b, double *sum)
{
	*sum = 0;
	for (size_t site = 0; site < l->sites; site++)
		*sum += creal(dot(a[site].color, b[site].color));
	return l->m ? weir_group_allreduce(l->m->g, sum, sum, 1, WEIR_T_DOUBLE, WEIR_ACC_SUM, -1)
		    : 0;
}

/* a = b + factor c */
static void
combine(const struct lattice *l, struct vector *a, const struct vector *b, double factor,
	const struct vector *c)
{
	for (size_t site = 0; site < l->sites; site++)
		for (unsigned i = 0; i < 3; i++)
			a[site].color[i] = b[site].color[i] + factor * c[site].color[i];
}

/* Conjugate gradients from x = 0; *iterations grows by those that it takes. */
static int
solve(struct lattice *l, size_t *iterations)
{
	double rr, before, enough, pq;
	int rc = product(l, l->b, l->b, &rr);

	memset(l->x, 0, l->sites * sizeof(*l->x));
	memcpy(l->r, l->b, l->sites * sizeof(*l->r));
	memcpy(l->p, l->b, l->sites * sizeof(*l->p));
	enough = rr * ACCURACY * ACCURACY;
	for (unsigned i = 0; !rc && rr > enough && i < ITERATIONS; i++, ++*iterations) {
		rc = apply(l, l->p, l->q);
		if (!rc)
			rc = product(l, l->p, l->q, &pq);
		if (rc)
			break;
		combine(l, l->x, l->x, rr / pq, l->p);
		combine(l, l->r, l->r, -rr / pq, l->q);
		before = rr;
		rc = product(l, l->r, l->r, &rr);
		combine(l, l->p, l->r, rr / before, l->p);
	}
	return rc;
}

/* ---- checks ---- */

/* b - A x, anew, relative to b. */
static int
check_residual(struct lattice *l)
{
	double rr, bb;
	int rc = apply(l, l->x, l->q);

	combine(l, l->r, l->b, -1, l->q);
	if (!rc)
		rc = product(l, l->r, l->r, &rr);
	if (!rc)
		rc = product(l, l->b, l->b, &bb);
	return rc ? rc : rr <= 100 * ACCURACY * ACCURACY * bb ? 0 : MEMBERS_WRONG;
}

/* The own solution against that of the whole lattice, sites relative to the norm of b. */
static int
check_whole(struct lattice *l, struct lattice *whole, uint64_t last_solve)
{
	double most = 0, bb;
	int rc;

	make_source(whole, last_solve);
	rc = solve(whole, &(size_t){0});
	if (!rc)
		rc = product(whole, whole->b, whole->b, &bb);
	for (size_t site = 0; !rc && site < l->sites; site++) {
		const struct vector *other = &whole->x[whole_site(l, site, -1)];

		for (unsigned i = 0; i < 3; i++)
			most = fmax(most, cabs(l->x[site].color[i] - other->color[i]));
	}
	return rc ? rc : members_agree(l->m, most <= 100 * ACCURACY * sqrt(bb));
}

/* ---- the program ---- */

static uint32_t
neighbour_of(const struct lattice *l, unsigned face)
{
	size_t rank = 0;

	for (unsigned d = DIMS; d-- > 0;) {
		size_t step = d != face / 2 ? 0 : face % 2 ? 1 : l->grid[d] - 1;

		rank = rank * l->grid[d] + (l->place[d] + step) % l->grid[d];
	}
	return (uint32_t)rank;
}

/* Gives prime factors of the members' number to the dimensions in turn, and the member its part. */
static void
divide(struct lattice *l)
{
	size_t members = l->m ? l->m->size : 1, rank = l->m ? l->m->rank : 0;
	size_t most = 1, least = l->n;

	for (unsigned d = 0; d < DIMS; d++)
		l->grid[d] = 1;
	for (unsigned d = DIMS - 1; members > 1; d = (d + DIMS - 1) % DIMS) {
		size_t factor = 2;

		while (members % factor)
			factor++;
		l->grid[d] *= factor;
		members /= factor;
	}
	l->sites = 1;
	for (unsigned d = 0; d < DIMS; d++) {
		size_t largest = (l->n + l->grid[d] - 1) / l->grid[d];

		l->place[d] = rank % l->grid[d];
		rank /= l->grid[d];
		l->first[d] = part_first(l->n, l->grid[d], l->place[d]);
		l->extent[d] = part_size(l->n, l->grid[d], l->place[d]);
		l->stride[d] = l->sites;
		l->sites *= l->extent[d];
		most *= largest;
		least = largest < least ? largest : least;
	}
	l->face_sites = most / least;
	for (unsigned face = 0; face < FACES; face++)
		l->neighbour[face] = neighbour_of(l, face);
}

static int
prepare(struct lattice *l)
{
	struct members *m = l->m;
	size_t bytes, halos;
	void *memory = NULL;
	int rc;

	divide(l);
	bytes = l->sites * sizeof(struct vector);
	halos = 2 * FACES * l->face_sites * sizeof(struct vector);
	l->link = malloc(l->sites * sizeof(*l->link));
	l->packed = malloc(halos / 2);
	l->halos = m ? NULL : malloc(halos);
	l->x = malloc(bytes);
	l->b = malloc(bytes);
	l->r = malloc(bytes);
	l->p = malloc(bytes);
	l->q = malloc(bytes);
	if (!l->link || !l->packed || !l->x || !l->b || !l->r || !l->p || !l->q ||
	    (!m && !l->halos))
		return -ENOMEM;
	make_links(l);
	if (!m)
		return 0;
	rc = members_window(m, halos, (uint32_t)(l->face_sites * sizeof(struct vector)), &memory,
			    &l->win);
	l->halos = memory;
	return rc || !m->by_messages ? rc : members_connect(m);
}

static int
compute(struct lattice *mine, struct lattice *whole, size_t solves)
{
	struct members *m = mine->m;
	size_t iterations = 0;
	double spent = 0, begin;
	int rc = prepare(mine);

	if (!rc)
		rc = prepare(whole);
	if (!rc)
		rc = weir_window_lock_all(mine->win, WEIR_NO_CHECK, -1);
	for (size_t s = 0; !rc && s < solves; s++) {
		make_source(mine, s);
		rc = weir_group_barrier(m->g, -1);
		begin = seconds();
		if (!rc)
			rc = solve(mine, &iterations);
		spent += seconds() - begin;
		if (!rc)
			rc = check_residual(mine);
	}
	if (rc)
		return rc;
	members_report(
	    m, m->by_messages ? "conjugate gradients by messages" : "conjugate gradients by puts",
	    spent, iterations);
	rc = check_whole(mine, whole, solves - 1);
	if (!rc)
		rc = weir_window_unlock_all(mine->win, -1);
	return rc ? rc : weir_window_free(mine->win, -1);
}

int
main(int argc, char **argv)
{
	static struct lattice mine, whole;
	struct members m = {.program = "window_lattice"};
	size_t arguments[2];
	int rc;

	if (!members_arguments(&m, argc, argv, "[--apart] [--by messages] NAME SIZE N SOLVES",
			       arguments, 2))
		return 2;
	mine.m = &m;
	mine.n = whole.n = arguments[0];
	divide(&mine);
	if (!mine.sites) {
		fprintf(stderr, "window_lattice: N is too small for %u members\n", m.size);
		return 2;
	}
	rc = members_join(&m);
	if (!rc)
		rc = compute(&mine, &whole, arguments[1]);
	return members_leave(&m, rc);
}
