// SPDX-License-Identifier: MIT

/// Which release all of this is.
public enum Release {
  public static let version = "0.1.0"
}
