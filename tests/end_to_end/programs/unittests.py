"""Tests as users write them: tf.test.TestCase with its sessions, run by unittest."""

import io
import unittest

import numpy as np
import tensorflow.compat.v1 as tf


class Cases(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.w = None

    def test_session(self):
        with self.session(graph=tf.Graph()) as sess:
            v = tf.get_variable("v", [2], initializer=tf.ones_initializer())
            step = tf.assign_add(v, [1.0, 2.0])
            self.evaluate(tf.global_variables_initializer())
            for k in range(6):
                self.assertAllClose(sess.run(step), [2.0 + k, 3.0 + 2 * k])
            self.assertAllEqual(self.evaluate(v), [7.0, 13.0])

    def test_cached_session(self):
        for turn in range(3):
            with self.cached_session() as sess:
                c = tf.constant(np.arange(4.0)) * float(turn)
                for _ in range(3):
                    self.assertAllEqual(sess.run(c), np.arange(4.0) * turn)

    def test_errors(self):
        with self.session(graph=tf.Graph()):
            x = tf.placeholder(tf.float32, name="x")
            y = tf.reshape(x, [3])
            for _ in range(5):
                with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "Input to reshape"):
                    y.eval({x: [1.0, 2.0]})
                with self.assertRaisesOpError("must feed a value for placeholder tensor 'x'"):
                    y.eval()

    def test_gradients(self):
        with self.session(graph=tf.Graph()):
            x = tf.constant([[0.5, -0.25], [1.0, 2.0]])
            y = tf.nn.softplus(tf.matmul(x, x))
            self.assertLess(tf.test.compute_gradient_error(x, [2, 2], y, [2, 2]), 1e-2)

    def test_that_fails(self):
        with self.session(graph=tf.Graph()) as sess:
            value = sess.run(tf.constant(1.0) + 1.0)
            self.assertEqual(value, 3.0)

    def test_seeds(self):
        with self.session(graph=tf.Graph()) as sess:
            tf.set_random_seed(3)
            a, b = tf.random_normal([2]), tf.random_normal([2], seed=4)
            values = [sess.run([a, b]) for _ in range(6)]
        with self.session(graph=tf.Graph()) as sess:
            tf.set_random_seed(3)
            a, b = tf.random_normal([2]), tf.random_normal([2], seed=4)
            self.assertAllEqual(values, [sess.run([a, b]) for _ in range(6)])


def program_cases(record):
    out = io.StringIO()
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Cases)
    result = unittest.TextTestRunner(out, verbosity=0).run(suite)
    record.value("run", [result.testsRun, len(result.errors)])
    record.value("failures", [text.strip().splitlines()[-1] for _, text in result.failures])
    record.value("errors", [text.strip().splitlines()[-1] for _, text in result.errors])
