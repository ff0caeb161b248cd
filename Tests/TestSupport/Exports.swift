// SPDX-License-Identifier: MIT

// A test imports one module for what it needs to test.
@_exported import LoopTestSupport
@_exported import MeshCoreFixtures
