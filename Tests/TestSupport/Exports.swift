// SPDX-License-Identifier: MIT

// Tests import a single module besides the tested ones.
@_exported import LoopTestSupport
@_exported import MeshCoreFixtures
