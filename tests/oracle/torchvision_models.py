"""Small models of torchvision with random weights, for generate_architectures.py. All take images `x` and return one row of logits for each."""
import torch
from torch import nn
from torchvision.models import densenet, efficientnet, mobilenetv2, resnet, shufflenetv2, vision_transformer
from torchvision.models.segmentation import lraspp

CLASSES, PIXELS = 3, 16


class ResidualBlocks(nn.Sequential):
    """torchvision's residual blocks, because its ResNet cannot be narrower than 64 channels."""

    def __init__(self):
        down = nn.Sequential(resnet.conv1x1(8, 12, stride=2), nn.BatchNorm2d(12))
        super().__init__(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
                         resnet.BasicBlock(8, 8), resnet.BasicBlock(8, 12, stride=2, downsample=down), resnet.Bottleneck(12, 3),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, CLASSES))

    def forward(self, x):
        return super().forward(x)


class Features(nn.Module):
    """Returns the two resolutions that a network for segmentation reads."""

    def __init__(self):
        super().__init__()
        self.low = mobilenetv2.InvertedResidual(3, 8, stride=2, expand_ratio=2)
        self.high = mobilenetv2.InvertedResidual(8, 12, stride=2, expand_ratio=2)

    def forward(self, x):
        low = self.low(x)
        return {"low": low, "high": self.high(low)}


class Segmentation(nn.Module):
    """torchvision's LRASPP on a small backbone. The logits of an image are the means over its pixels."""

    def __init__(self):
        super().__init__()
        self.network = lraspp.LRASPP(Features(), 8, 12, CLASSES, inter_channels=8)

    def forward(self, x):
        return self.network(x)["out"].mean((2, 3))


def named(name, make, pixels=PIXELS):
    make.__name__ = name
    return make, lambda rows: {"x": torch.randn(rows, 3, pixels, pixels)}


MODELS = {
    "torchvision_densenet": named("torchvision.DenseNet", lambda: densenet.DenseNet(
        growth_rate=4, block_config=(2, 2), num_init_features=8, bn_size=2, num_classes=CLASSES)),
    "torchvision_efficientnet": named("torchvision.EfficientNet", lambda: efficientnet.EfficientNet(
        [efficientnet.FusedMBConvConfig(1, 3, 1, 8, 8, 1), efficientnet.MBConvConfig(2, 3, 2, 8, 12, 2)], dropout=0.2,
        stochastic_depth_prob=0.0, num_classes=CLASSES, last_channel=16)),
    "torchvision_lraspp": named("torchvision.LRASPP", Segmentation),
    "torchvision_mobilenet_v2": named("torchvision.MobileNetV2", lambda: mobilenetv2.MobileNetV2(
        num_classes=CLASSES, width_mult=0.25, inverted_residual_setting=[[1, 8, 1, 1], [2, 16, 2, 2]])),
    "torchvision_resnet": named("torchvision.ResNet", ResidualBlocks),
    "torchvision_shufflenet_v2": named("torchvision.ShuffleNetV2", lambda: shufflenetv2.ShuffleNetV2(
        [2, 1, 1], [8, 8, 16, 16, 24], num_classes=CLASSES), pixels=64),  # this model halves the image five times
    "torchvision_vit": named("torchvision.VisionTransformer", lambda: vision_transformer.VisionTransformer(
        image_size=PIXELS, patch_size=4, num_layers=1, num_heads=2, hidden_dim=16, mlp_dim=24, dropout=0.1, num_classes=CLASSES)),
}
