// SPDX-License-Identifier: MIT

/// The version of this release.
public enum Release {
  public static let version = "0.1.0"
}
