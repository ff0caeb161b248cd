// SPDX-License-Identifier: MIT

/// Radio parameters that the meshes of a region have agreed on. All nodes of a mesh need the same ones.
///
/// Source: MeshCore's suggested radio settings (api.meshcore.nz, `suggested_radio_settings`) of 4 September 2026. The
/// communities choose them, and may change them.
public struct RadioPreset: Equatable, Sendable {
  public let name: String
  public let parameters: RadioParameters
  /// Bytes of a repeater's key in a path, if the region has agreed on that, too.
  public let pathHashBytes: UInt8?

  private init(
    _ name: String, _ kilohertz: UInt32, _ hertz: UInt32, _ spreadingFactor: UInt8, _ codingRate: UInt8,
    _ pathHashBytes: UInt8? = nil
  ) {
    self.name = name
    parameters = RadioParameters(
      frequency: kilohertz, bandwidth: hertz, spreadingFactor: spreadingFactor, codingRate: codingRate)
    self.pathHashBytes = pathHashBytes
  }

  public static let all = [
    RadioPreset("Australia", 915_800, 250_000, 10, 5), RadioPreset("Australia (Narrow)", 916_575, 62_500, 7, 8),
    RadioPreset("Australia (Mid)", 915_075, 125_000, 9, 5), RadioPreset("Australia: SA, WA", 923_125, 62_500, 8, 8),
    RadioPreset("Australia: QLD", 923_125, 62_500, 8, 5), RadioPreset("Brazil", 923_125, 62_500, 8, 8),
    RadioPreset("Costa Rica", 910_525, 125_000, 11, 5), RadioPreset("EU/UK (Narrow)", 869_618, 62_500, 8, 8),
    RadioPreset("EU/UK (Deprecated)", 869_525, 250_000, 11, 5),
    RadioPreset("Czech Republic (Narrow)", 869_432, 62_500, 7, 5),
    RadioPreset("EU 433MHz (Long Range)", 433_650, 250_000, 11, 5),
    RadioPreset("EU 433MHz (Narrow)", 433_650, 62_500, 8, 8), RadioPreset("Hungary", 869_618, 62_500, 7, 5, 2),
    RadioPreset("Netherlands", 869_618, 62_500, 7, 5), RadioPreset("New Zealand (Narrow)", 917_375, 62_500, 7, 5, 2),
    RadioPreset("New Zealand (Gisborne)", 917_375, 250_000, 11, 5, 1),
    RadioPreset("Portugal 433", 433_375, 62_500, 9, 6),
    RadioPreset("Portugal 868", 869_618, 62_500, 7, 6), RadioPreset("Slovakia", 869_618, 62_500, 7, 5, 2),
    RadioPreset("Switzerland", 869_618, 62_500, 8, 8), RadioPreset("USA/Canada (Recommended)", 910_525, 62_500, 7, 5),
    RadioPreset("Vietnam (Narrow)", 920_250, 62_500, 8, 5),
    RadioPreset("Vietnam (Deprecated)", 920_250, 250_000, 11, 5),
  ]

  /// The names of fitting presets. Radios truncate, so differences of 1 kHz and 1 Hz are ignored.
  public static func names(fitting parameters: RadioParameters) -> [String] {
    all.filter { preset in
      let own = preset.parameters
      return distance(own.frequency, parameters.frequency) <= 1 && distance(own.bandwidth, parameters.bandwidth) <= 1
        && own.spreadingFactor == parameters.spreadingFactor && own.codingRate == parameters.codingRate
    }.map(\.name)
  }

  private static func distance(_ a: UInt32, _ b: UInt32) -> UInt32 { a > b ? a - b : b - a }
}
